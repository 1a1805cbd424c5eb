"""What a user or a model reads, in Chinese and English; logs are not made here.

Above `core` and `settings`. Import from `texts` (picked by language) and `catalogue` (the words).
"""
