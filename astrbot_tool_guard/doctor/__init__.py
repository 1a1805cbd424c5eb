"""Looks at stored conversations and mends them; knows no chat, no WebUI and no AstrBot.

Above `texts`. Import `Doctor` from `doctor`, and the file of a stopped bot from `database`.
"""
