"""Documents to be typeset, drawn, searched or changed: text, XML, JSON, pages, pictures."""

import json
from collections.abc import Iterator
from random import Random

SYLLABLES = ["al", "lo", "cat", "or", "ma", "ny", "pa", "ges", "ti", "me", "he", "ap"]


def word(chance: Random) -> str:
    """A made-up word; there are some twenty thousand."""
    return "".join(chance.choices(SYLLABLES, k=chance.randrange(1, 5)))


def sentence(chance: Random) -> str:
    """Some words with a point behind them."""
    words = [word(chance) for _ in range(chance.randrange(4, 20))]
    return " ".join(words).capitalize() + "."


def text(paragraphs: int) -> Iterator[str]:
    """Plain text in paragraphs of a line each."""
    chance = Random(21)
    for _ in range(paragraphs):
        yield " ".join(sentence(chance) for _ in range(chance.randrange(1, 8)))


def orders(count: int) -> Iterator[dict[str, object]]:
    """Orders of customers, as a shop exports them."""
    chance = Random(22)
    for number in range(count):
        yield {
            "number": number,
            "customer": f"{word(chance)} {word(chance)}".title(),
            "city": word(chance).title(),
            "paid": chance.random() < 0.7,
            "note": sentence(chance),
            "items": [
                {
                    "article": word(chance),
                    "price": round(chance.uniform(1, 900), 2),
                    "count": chance.randrange(1, 9),
                }
                for _ in range(chance.randrange(1, 7))
            ],
        }


def json_lines(count: int) -> Iterator[str]:
    """The orders, an object of JSON a line."""
    return (json.dumps(order) for order in orders(count))


def xml(count: int) -> Iterator[str]:
    """The orders as one XML document."""
    yield '<?xml version="1.0"?>\n<orders>'
    for order in orders(count):
        paid = str(order["paid"]).lower()
        yield f'<order number="{order["number"]}" paid="{paid}" city="{order["city"]}">'
        yield f"<customer>{order['customer']}</customer><note>{order['note']}</note>"
        items = order["items"]
        assert isinstance(items, list)
        for item in items:
            yield (
                f'<item article="{item["article"]}" count="{item["count"]}">'
                f"<price>{item['price']}</price></item>"
            )
        yield "</order>"
    yield "</orders>"


def page_source(sections: int) -> Iterator[str]:
    """A manual for troff's -man macros, with tables of tabs, fonts and traps."""
    chance = Random(23)
    yield '.TH MANUAL 1 "2020-01-01" "Version 1" "A manual"'
    for number in range(sections):
        yield f".SH SECTION {number}"
        for _ in range(chance.randrange(2, 6)):
            yield ".PP"
            for _ in range(chance.randrange(2, 9)):
                yield sentence(chance)
                yield f".BI {word(chance)} \\-{word(chance)}"
        for _ in range(chance.randrange(6)):
            yield f".TP\n.B \\-\\-{word(chance)}\n{sentence(chance)}"
        yield f".de M{number % 90:02}\n.ft I\n\\\\$1 \\s+2\\\\$2\\s0\n.ft P\n.."
        yield f".M{number % 90:02} {word(chance)} {word(chance)}"


def drawing(shapes: int) -> Iterator[str]:
    """An SVG picture: paths, gradients, clips, filters and groups in groups."""
    chance = Random(25)

    def numbers(count: int, most: int = 1000) -> str:
        return " ".join(f"{chance.uniform(0, most):.2f}" for _ in range(count))

    def colour() -> str:
        return f"#{chance.randrange(1 << 24):06x}"

    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        ' width="1000" height="1000">'
    )
    yield '<filter id="blur"><feGaussianBlur stdDeviation="3"/></filter>'
    for number in range(shapes):
        yield f'<linearGradient id="g{number}" x1="0" x2="{chance.random():.2f}">'
        yield f'<stop offset="0" stop-color="{colour()}"/>'
        yield f'<stop offset="1" stop-color="{colour()}"/></linearGradient>'
        turn = f"rotate({chance.randrange(360)} 500 500)"
        blurred = 'filter="url(#blur)"' if number % 50 == 0 else ""
        yield f'<g transform="{turn}" opacity="{chance.random():.2f}" {blurred}>'
        curves = " ".join(f"C {numbers(6)}" for _ in range(chance.randrange(1, 20)))
        yield f'<path d="M {numbers(2)} {curves}" fill="url(#g{number})"'
        yield f' stroke="{colour()}" stroke-dasharray="{numbers(3, 20)}"/>'
        yield f'<circle cx="{numbers(1)}" cy="{numbers(1)}" r="{numbers(1, 40)}"/></g>'
    yield "</svg>"


def picture(rows: int) -> bytes:
    """A picture of 1,024 pixels a row in PPM: gradients with some noise."""
    chance = Random(26)
    width = 1024
    noise = chance.randbytes(4096)
    lines = [
        bytes(
            (row + column * colour + noise[(row * 7 + column) % 4096] // 8) % 256
            for column in range(width)
            for colour in (1, 2, 3)
        )
        for row in range(min(rows, 64))
    ]
    body = b"".join(lines[row % len(lines)] for row in range(rows))
    return b"P6\n%d %d\n255\n%s" % (width, rows, body)


def printed_page(lines: int) -> Iterator[str]:
    """PostScript of one page of text, for those who read pictures."""
    chance = Random(27)
    yield "%!PS-Adobe-3.0\n/Times-Roman findfont 11 scalefont setfont"
    for line in range(lines):
        words = " ".join(word(chance) for _ in range(10))
        yield f"40 {800 - 14 * line} moveto ({words}) show"
    yield "showpage"
