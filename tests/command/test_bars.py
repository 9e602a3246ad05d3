"""Progress: bars on a terminal, lines in a log."""

import io

import pytest
from rich.console import Console

from semistan.terminal import bars, screen


@pytest.fixture
def shown(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(screen, "notes", Console(file=text, width=100))
    return text


@pytest.fixture
def terminal(monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(screen, "notes", Console(file=text, force_terminal=True, width=100))
    monkeypatch.setattr(screen, "is_interactive", lambda: True)
    return text


@pytest.fixture
def clock(monkeypatch):
    """Time that passes by what is added to its only element."""
    seconds = [0.0]
    monkeypatch.setattr(bars.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_bar_of_images_begins_with_the_first(terminal):
    with bars.image_bar() as reading:
        assert terminal.getvalue() == ""
        reading(3, 9)
        reading(9, 9)
    assert "9/9 images" in terminal.getvalue()
    with bars.image_bar():
        terminal.truncate(0)
    assert terminal.getvalue() == ""


def test_a_log_gets_a_line_a_minute(shown, clock):
    with bars.training_bar() as progress:
        for epoch in range(1, 51):
            clock[0] += 4.0
            progress(epoch, 50, 1 / epoch, 2 / epoch)
    assert shown.getvalue().splitlines() == [
        "training: 15 of 50 epochs, loss 0.0667, held out 0.1333",
        "training: 30 of 50 epochs, loss 0.0333, held out 0.0667",
        "training: 45 of 50 epochs, loss 0.0222, held out 0.0444",
    ]


def test_a_log_has_nothing_of_what_is_short(shown, clock):
    with bars.image_bar() as reading, bars.chain_bars() as chains:
        clock[0] += 59.0
        reading(9, 9)
        chains(1, 500, 500)
    assert shown.getvalue() == ""


def test_a_log_names_the_chains_under_way(shown, clock):
    with bars.chain_bars() as progress:
        progress(1, 10, 400)
        progress(2, 20, 400)
        clock[0] += 60.0
        progress(1, 200, 400)
        progress(1, 400, 400)
        clock[0] += 60.0
        progress(2, 300, 400)
        clock[0] += 60.0
        progress(2, 400, 400)
    assert shown.getvalue().splitlines() == [
        "sampling: chain 1 at 200 of 400, chain 2 at 20 of 400",
        "sampling: chain 2 at 300 of 400",
    ]


def test_a_terminal_has_bars_and_no_lines(terminal, clock):
    with bars.chain_bars() as progress:
        progress(1, 10, 400)
        clock[0] += 60.0
        progress(1, 200, 400)
    assert "200/400" in terminal.getvalue()
    assert "sampling" not in terminal.getvalue()
