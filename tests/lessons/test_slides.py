"""The slides of the lessons: what they show and when, that all of it fits, and that a deck needs no other file."""

from collections.abc import Iterator
from pathlib import Path

import make_slides
import pytest
from playwright.sync_api import Browser, Page, expect

from pellucid.course.exercises import all_lessons

IN_SHORT = (1, 7)  # with a long table of results, and with many formulas
TOO_LARGE = """() => {
    const slide = document.querySelector("section[aria-selected]").getBoundingClientRect();
    return [...document.querySelectorAll("section[aria-selected] :is(h1, p, li, table, pre, img, math)")]
        .filter((part) => { const at = part.getBoundingClientRect();
            return at.bottom > slide.bottom - 8 || at.right > slide.right - 20 ||
                part.scrollWidth > part.clientWidth + 1; })
        .map((part) => part.textContent || part.alt);
}"""
PAGE = """\
# 20 Pears

After this lesson you can count pears.

```python
import pears
```

## A basket

A basket holds pears. Some are hard. A **crate** holds baskets. It is made of wood.

Ana has three pears and eats one. *How many pears are left now?* We count them with [`pears`](pears.py).

```python
print(3 - 1)
```

<!-- numbers within 1% -->
```text
2
```

### Exercise: many pears

`sum_of_pears` · 4 minutes · ★

Count all pears.

Those that are rotten do not count.

<details><summary>Hint</summary>

Go through the baskets.

</details>

*And what if nobody eats any?*

<details><summary>Answer</summary>

Three.

</details>

*And how do they look then?*

![Three pears](figures/20_pears.png)
"""
SLIDES = """\
# 20 Pears

After this lesson you can count pears.

# A basket

A basket holds pears. A **crate** holds baskets.

Ana has three pears and eats one. *How many pears are left now?*

```{.python style="font-size: 22px"}
print(3 - 1)
```

<div class="incremental">

```{.text style="font-size: 22px"}
2
```

</div>

# Exercise: many pears {.exercise}

`sum_of_pears` · 4 minutes · ★

Count all pears.

# A basket

*And what if nobody eats any?*

<div class="incremental">

Three.

</div>

# A basket

*And how do they look then?*

<div class="incremental">

![Three pears](figures/20_pears.png)

</div>

"""


def test_slides_ask_first_and_tell_neither_hints_nor_what_is_only_to_be_read():
    assert make_slides.slides(PAGE) == SLIDES


def test_each_exercise_is_on_a_slide_with_its_minutes_and_no_hint_is():
    for lesson in all_lessons():
        deck = make_slides.slides(lesson.page.read_text(encoding="utf-8"))
        assert all(f"\n`{exercise.name}` · " in deck for exercise in lesson.exercises), lesson.number
        assert "<details>" not in deck
        assert "<!--" not in deck, "a mark of a measured number is not for the audience"


@pytest.fixture(scope="module")
def decks(in_full: bool, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("slides")
    return [make_slides.make_deck(each, folder) for each in all_lessons() if in_full or each.number in IN_SHORT]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text))
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else faults.append(asked.url))
    yield page
    page.close()
    assert faults == []


def test_everything_fits_on_its_slide_and_nothing_comes_from_outside(page, decks):
    for deck in decks:
        page.goto(deck.as_uri())
        assert page.eval_on_selector_all("img", "all => all.every((image) => image.naturalWidth > 0)")
        n_slides = page.locator("section").count()
        assert n_slides > 20
        for number in range(1, n_slides + 1):
            page.evaluate(f"Dz.setSlide({number})")
            assert page.evaluate(TOO_LARGE) == [], f"{deck.stem}, slide {number}"


def test_what_code_prints_comes_with_the_next_key_and_space_goes_on(page, decks):
    page.goto(decks[0].as_uri())
    slides = page.locator("section")
    number = next(i for i in range(slides.count()) if slides.nth(i).locator(".incremental").count())
    page.goto(f"{decks[0].as_uri()}#{number + 1}")
    printed = slides.nth(number).locator(".incremental > *").first
    expect(slides.nth(number)).to_be_visible()
    expect(printed).to_be_hidden()
    page.keyboard.press("Space")
    expect(printed).to_be_visible()
    page.keyboard.press("PageDown")
    expect(slides.nth(number + 1)).to_be_visible()
