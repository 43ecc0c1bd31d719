"""A Ray cluster of several nodes on this machine, in a process of its own: killed nodes, and Ray's threads, are not the test's.

It prints its address; then for each line with the number of a process it kills the node that runs it, and says so. It ends
with its standard input.
"""

from __future__ import annotations

import logging
import sys

import psutil
from ray.cluster_utils import Cluster


def main() -> None:
    """Entry: python ray_nodes.py NODES FOLDER."""
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0},
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(int(sys.argv[1]))]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        above = {process.pid for process in psutil.Process(int(line)).parents()}
        for node in list(nodes):
            if node.all_processes["raylet"][0].process.pid in above:
                nodes.remove(node)
                cluster.remove_node(node, allow_graceful=False)
                print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    logging.disable()
    main()
