"""A system for which uvloop is not made: the service runs on asyncio's own event loop, and says so."""

import signal
import subprocess
import sys
from pathlib import Path

from rallypoint import GroupMember, MemberOptions
from tests.real.parts import ROOT


async def test_the_service_runs_without_uvloop(tmp_path: Path) -> None:
    code = (
        "import sys\nsys.modules['uvloop'] = None\nfrom rallypoint.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    storage = f"sqlite:///{tmp_path / 'rallypoint.db'}"
    process = subprocess.Popen(  # noqa: ASYNC220 - it is waited for below
        [sys.executable, "-c", code, "serve", "--port", "0", "--storage", storage],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("listening on ").strip()
        options = MemberOptions(coordinator=url, group_id="g", topics=("clicks",))
        async with GroupMember(options, partition_counts={"clicks": 2}) as member:
            held = await member.wait_assigned(30_000)
            await member.commit({("clicks", 1): 7})
            assert (await member.committed())[("clicks", 1)].offset == 7
            assert len(held.partitions) == 2
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "uvloop is not installed, so the service runs on asyncio's own event loop, which is slower" in err
