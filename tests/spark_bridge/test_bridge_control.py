"""The way from the driver's main process to a reader and back."""

from pathlib import Path

from spark_bridge.control import Answer, ControlDirectory, ReaderControl, Request


def test_a_request_reaches_one_reader_and_its_answer_comes_back(tmp_path: Path) -> None:
    directory = ControlDirectory(tmp_path)
    reader, other = ReaderControl(str(tmp_path), "r1"), ReaderControl(str(tmp_path), "r2")
    assert reader.request() is None
    directory.ask("r1", Request("refuse", "because"))
    assert reader.request() == Request("refuse", "because")
    assert other.request() is None
    assert directory.answer("r1") is None
    reader.answer(Answer(committed=False, detail="lost"))
    assert directory.answer("r1") == Answer(committed=False, detail="lost")


def test_a_request_can_be_taken_back(tmp_path: Path) -> None:
    directory, reader = ControlDirectory(tmp_path), ReaderControl(str(tmp_path), "r1")
    directory.ask("r1", Request("stop"))
    directory.withdraw("r1")
    directory.withdraw("r1")
    assert reader.request() is None


def test_only_this_user_may_enter_and_nothing_is_left(tmp_path: Path) -> None:
    directory = ControlDirectory.create()
    assert directory.path.stat().st_mode & 0o777 == 0o700
    directory.ask("r1", Request("stop"))
    directory.remove()
    directory.remove()
    assert not directory.path.exists()


def test_a_reader_outlives_the_driver_and_its_directory(tmp_path: Path) -> None:
    reader = ReaderControl(str(tmp_path / "gone"), "r1")
    reader.answer(Answer(committed=True))
    assert reader.request() is None
    assert ReaderControl(None, "r1").request() is None
