"""Files of requests in OpenAI's batch format, answered by one bundle or several.

requests  the requests of a file, sorted by prompt prefix
results   the file of answers: finished lines, and one more line at a time
worker    submits lines to a service, enough at once to keep every batch slot busy
run       the whole file, and its summary: done, failed, skipped
"""
