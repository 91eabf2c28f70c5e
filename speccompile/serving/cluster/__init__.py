"""More than one machine, by Ray. Needs the extra `ray`.

connect   a cluster, or one that is started here
serving   replicas of a bundle behind one address; `front` is what listens, `replica` what answers
replicas  how many, and what each takes
affinity  which replica a prompt belongs to; `routing` tells Ray
lines     files of requests over several bundles
pool      builds and measurements as tasks: a stand-in for `speccompile.machine.executor.Here`
"""
