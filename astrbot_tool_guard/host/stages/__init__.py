"""What is done to a request and to an answer on its way; knows no protocol's words.

Above `seams`. Import `RequestStage` from `request` and `ResponseStage` from `response`.
"""
