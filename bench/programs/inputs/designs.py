"""Descriptions of things that are built: circuits, solids, networks, maps, plots."""

import json
from collections.abc import Iterator
from random import Random


def verilog(units: int) -> Iterator[str]:
    """Processors of a few registers, each different, and a module that joins them."""
    chance = Random(31)
    for unit in range(units):
        width = chance.randrange(12, 33)
        yield f"module unit{unit}(input clk, input rst, input [{width - 1}:0] a, b,"
        yield f" output reg [{width - 1}:0] q, output reg flag);"
        yield f" reg [{width - 1}:0] file [0:7]; reg [3:0] state; integer i;"
        yield " always @(posedge clk) if (rst) begin state <= 0; q <= 0; flag <= 0;"
        yield "  for (i = 0; i < 8; i = i + 1) file[i] <= i; end"
        yield "  else case (state)"
        for state in range(15):
            one, other = chance.randrange(8), chance.randrange(8)
            operator = chance.choice(("+", "-", "^", "&", "|", "<<", "*"))
            right = "b[3:0]" if operator == "<<" else chance.choice(("a", "b"))
            yield f"   {state}: begin file[{one}] <= file[{other}] {operator} {right};"
            yield f"    q <= file[{other}] + {chance.randrange(99)};"
            yield f"    state <= a > b ? {chance.randrange(16)} : {(state + 1) % 16}; end"
        yield "   default: begin flag <= ^q; state <= a[3:0]; end"
        yield "  endcase\nendmodule"
    yield "module top(input clk, input rst, input [31:0] a, b, output [31:0] q);"
    for unit in range(units):
        yield f" wire [31:0] q{unit}; wire flag{unit};"
        yield f" unit{unit} u{unit}(clk, rst, a, b + {unit}, q{unit}, flag{unit});"
    yield f" assign q = {' ^ '.join(f'q{unit}' for unit in range(units))}"
    yield f"  ^ {{{', '.join(f'flag{unit}' for unit in range(units))}}};\nendmodule"


def circuit(cells: int) -> Iterator[str]:
    """A chain of amplifiers for a simulator of circuits."""
    yield "A chain of amplifiers"
    yield ".model fast npn (bf=120 is=1e-15 rb=50 cje=0.5p cjc=0.3p tf=0.1n)"
    yield "vcc supply 0 5\nvin in0 0 sin(0.7 0.05 10meg)"
    for cell in range(cells):
        yield f"q{cell} out{cell} base{cell} emit{cell} fast"
        yield f"rc{cell} supply out{cell} {1000 + cell}"
        yield f"re{cell} emit{cell} 0 {220 + cell % 50}"
        yield f"ra{cell} supply base{cell} 47k\nrb{cell} base{cell} 0 12k"
        yield f"ci{cell} in{cell} base{cell} 10p\ncl{cell} out{cell} 0 0.2p"
        yield f"rx{cell} out{cell} in{cell + 1} 100"
    yield "rend in" + f"{cells} 0 1meg"
    yield ".control\ntran 0.2n 60n\n"
    yield f"wrdata waves v(out0) v(out{cells // 2}) v(out{cells - 1})\nquit\n.endc\n.end"


def solid(holes: int) -> Iterator[str]:
    """A plate with holes and knobs, exact to the last digit."""
    yield "$fn = 14;\ndifference() { union() {"
    yield f" cube([{holes * 10}, 40, 4]);"
    for hole in range(holes):
        yield f" translate([{hole * 10 + 5}, 12, 3]) sphere({2 + hole % 3});"
    yield "}"
    for hole in range(holes):
        yield (
            f" translate([{hole * 10 + 5}, 28, -1])"
            f" rotate([0, {hole * 3}, {hole}]) cylinder(h=9, r={1 + hole % 3});"
        )
    yield "}"


def land(parcels: int) -> Iterator[str]:
    """A map of parcels in GeoJSON, each with a name and a rough border."""
    chance = Random(34)
    features = []
    for parcel in range(parcels):
        left, low = (parcel % 300) / 10, (parcel // 300) / 10
        steps = chance.randrange(20, 80)
        border = [
            [
                round(left + 0.09 * step / steps, 6),
                round(low + chance.uniform(0, 0.02), 6),
            ]
            for step in range(steps + 1)
        ]
        ring = [*border, [left + 0.09, low + 0.09], [left, low + 0.09], border[0]]
        features.append(
            {
                "type": "Feature",
                "properties": {"name": f"parcel {parcel}", "value": chance.random()},
                "geometry": {"type": "Polygon", "coordinates": [ring]},
            }
        )
    yield json.dumps({"type": "FeatureCollection", "features": features})
