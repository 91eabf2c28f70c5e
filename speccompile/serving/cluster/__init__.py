"""More than one machine, by Ray. Needs the extra `ray`.

connect         connects to a cluster, or starts one here
serving         replicas of a bundle behind one address: `proxy` listens, `replica` answers
replicas        number and resources of replicas
affinity        order of replicas for a prompt; `routing` applies it in Ray
bundle_options  files of requests over several bundles
pool            builds and measurements as tasks: a stand-in for `speccompile.machine.executor.LocalExecutor`
"""
