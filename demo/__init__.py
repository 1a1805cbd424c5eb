"""What a newcomer sees first: `make demo` and `make run`."""
