from datetime import UTC, datetime

from pulsar_lakehouse.page.html import Markup, Number, address, badge, cut, grid, sparkline, tag


def test_text_is_escaped_and_html_is_not() -> None:
    assert tag("p", "<b>", tag("i", 'a & "b"'), Markup("<hr>"), None, 1234) == (
        "<p>&lt;b&gt;<i>a &amp; &quot;b&quot;</i><hr>1,234</p>"
    )


def test_control_characters_are_visible_but_for_ends_of_lines() -> None:
    assert tag("pre", "a\x1b[31m\u202eb\nc\x00") == "<pre>a\\x1b[31m\\u202eb\nc\\x00</pre>"


def test_attributes_are_escaped_or_left_out() -> None:
    assert tag("input", name='"><script>', class_="a", aria_label="'", required=True, hidden=False, id=None) == (
        '<input name="&quot;&gt;&lt;script&gt;" class="a" aria-label="&#x27;" required>'
    )


def test_an_address_quotes_what_it_asks_for() -> None:
    assert address("trace", key='a&b="<', topic="ü") == "trace?key=a%26b%3D%22%3C&topic=%C3%BC"


def test_a_table_aligns_numbers_and_breaks_long_texts() -> None:
    assert grid("Some", ("name", "count", "rate", "why"), [("a", 1000, Number("0.5"), "x" * 41)]) == (
        '<div class="scroll" tabindex="0" role="region" aria-label="Some"><table><thead><tr>'
        '<th scope="col">name</th><th scope="col" class="number">count</th><th scope="col" class="number">rate</th>'
        '<th scope="col" class="long">why</th></tr></thead><tbody><tr><td>a</td><td class="number">1,000</td>'
        f'<td class="number">0.5</td><td class="long">{"x" * 41}</td></tr></tbody></table></div>'
    )


def test_a_table_without_rows_is_a_text() -> None:
    assert grid("Some", ("name",), [], "None <yet>.") == '<p class="empty">None &lt;yet&gt;.</p>'


def test_a_state_has_words_beside_its_colour_and_icon() -> None:
    assert badge("bad", "<late>").endswith("</svg>&lt;late&gt;</span>")


def test_a_sparkline_says_what_it_shows_and_has_a_bar_for_each_count() -> None:
    counts = [(datetime(2026, 1, 1, hour, tzinfo=UTC), rows) for hour, rows in ((1, 10), (2, 2000), (3, 1))]
    drawn = sparkline(counts, "commits")
    assert "<title>3 commits from 2026-01-01 01:00 to 2026-01-01 03:00 UTC, with up to 2,000 rows</title>" in drawn
    assert [part.partition('"')[0] for part in drawn.split('height="')[2:]] == ["1", "20", "1"]
    assert sparkline([], "commits") == ""


def test_long_values_are_cut() -> None:
    assert (cut("a" * 2_000), cut("a" * 2_001)) == ("a" * 2_000, "a" * 2_000 + "… (2,001 characters)")
