"""What the guard tells: its events, and where they are counted, logged and kept.

Above `texts`. Import the events from `events`, and those who watch them from their modules.
"""
