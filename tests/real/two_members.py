"""A service, two members that share a topic, and a commit, on whichever Python runs `python -m tests.real.two_members`.

The one line of standard output is JSON: the partitions of each, what is committed, and how the service ended.
"""

import json
import subprocess
import sys

from rallypoint import BlockingGroupMember, MemberOptions

SERVE = ("-W", "error", "-m", "rallypoint.cli.main", "serve", "--port", "0", "--storage", "memory:")


def main() -> None:
    """All of it, and the end of the service in good order."""
    command = [sys.executable, *SERVE, "--group-initial-rebalance-delay-ms", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        url = service.stdout.readline().removeprefix("listening on ").strip()
        try:
            options = MemberOptions(coordinator=url, group_id="g", topics=("clicks",))
            with (
                BlockingGroupMember(options, partition_counts={"clicks": 4}) as first,
                BlockingGroupMember(options, partition_counts={"clicks": 4}) as second,
            ):
                held = [first.wait_assigned(30_000), second.wait_assigned(30_000)]
                if held[0].generation_id < held[1].generation_id:
                    held[0] = first.wait_assigned(30_000, newer_than=held[0].generation_id)
                own = min(held[0].partitions)
                first.commit({own: 7})
                committed = first.committed()[own].offset
        finally:
            service.terminate()
        status = service.wait(30)
    shares = [sorted(partition for _, partition in one.partitions) for one in held]
    print(json.dumps({"shares": sorted(shares), "committed": committed, "status": status}))


if __name__ == "__main__":
    main()
