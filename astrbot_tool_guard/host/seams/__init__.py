"""How functions of AstrBot and the SDKs are wrapped, and how our own faults are contained.

The lowest room of the host: knows no stage. Import `Seams` from `seams`, `Faults` from `faults`.
"""
