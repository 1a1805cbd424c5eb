"""Lists of messages: whether calls and results pair, and how a list that does not is mended.

Pure, and beside `calls`. Import from `pairing` (find), `repair` (mend) and `history` (stored).
"""
