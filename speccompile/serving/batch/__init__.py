"""Files of requests in OpenAI's batch format, answered by one bundle or several.

lines     the requests of a file, in the order in which they are asked
results   the file of answers: what is done in it already, and one more line at a time
answers   lines asked of a service, so many at once that no row waits
run       the whole, and what comes out: done, failed, skipped
"""
