"""What satlib says while it works, where nobody watches: lines of a log file, rarely."""

from satlib.files import progress


def lines(capsys):
    said = capsys.readouterr()
    assert said.out == ""
    assert "\r" not in said.err
    return said.err.splitlines()


def test_a_line_whenever_the_time_is_over(monkeypatch, capsys):
    monkeypatch.setattr(progress, "MINUTE", 0.0)
    with progress.progress_bar(total=3, desc="work", unit="img") as bar:
        for number in range(3):
            bar.set_postfix_str(f"{number} found", refresh=False)
            bar.update()
            with bar.external_write_mode():  # as `say` does, which would erase a bar of a terminal
                pass
    said = lines(capsys)
    assert [line.partition(" [")[0] for line in said] == ["work: 0/3", "work: 1/3", "work: 2/3", "work: 3/3"]
    assert said[2].endswith("img/s, 1 found]")


def test_a_line_comes_late_and_not_often(monkeypatch, capsys):
    now = 0.0
    monkeypatch.setattr("tqdm.std.time", lambda: now)
    with progress.progress_bar(total=1000, desc="work") as bar:
        for _ in range(1000):
            now += 0.25
            bar.update()
    assert [line.partition(" [")[0] for line in lines(capsys)] == [
        f"work: {240 * minute}/1000" for minute in (1, 2, 3, 4)
    ]


def test_short_work_says_nothing(capsys):
    for leave in (True, False):
        assert sum(progress.progress_bar(range(10), desc="work", leave=leave)) == 45
    assert lines(capsys) == []


def test_nor_does_quiet_work(monkeypatch, capsys):
    monkeypatch.setattr(progress, "MINUTE", 0.0)
    monkeypatch.setattr(progress, "quiet", True)
    assert sum(progress.progress_bar(range(10), desc="work")) == 45
    assert lines(capsys) == []
