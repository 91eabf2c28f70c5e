"""Reading of request bodies within limits of time and memory.

What a body costs is known only when it has been read: tokenizing a long text, running a chat template or compiling a
grammar may take minutes and gigabytes, and no thread can be ended. So small bodies without new grammars are read in a
thread, and all others in a child process of their own, which the kernel ends at its limits or when the client leaves.

tasks       what is done with a body, within `limits`
child       program that has the tokenizer open, and forks a child for each body
processes   children as the server sees them: queue, time limits, errors; `reader`: a thread or a child
"""
