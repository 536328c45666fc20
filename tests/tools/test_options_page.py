"""The page of options is generated from the table, and current."""

from __future__ import annotations

from options_page import PAGE, options_page


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text("utf-8") == options_page(), "run python tools/options_page.py"
