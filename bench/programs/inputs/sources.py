"""Sources for compilers, linkers and those who look for mistakes, and problems to solve."""

from collections.abc import Iterator
from random import Random


def rust(units: int) -> Iterator[str]:
    """A Rust library: traits, generics, closures and matches."""
    yield "#![allow(dead_code)]\nuse std::collections::{BTreeMap, HashMap};"
    yield "pub trait Shape { fn size(&self) -> f64; fn name(&self) -> String; }"
    for unit in range(units):
        kind = ("u32", "u64", "i16", "i64")[unit % 4]
        yield f"""
pub mod unit{unit} {{
use super::*;
#[derive(Clone, Debug, PartialEq)]
pub enum Node<T> {{ Leaf(T), Pair(Box<Node<T>>, Box<Node<T>>), Named(String, Vec<T>), Empty }}
#[derive(Clone, Debug, Default, PartialEq, PartialOrd)]
pub struct Record {{
  pub id: {kind}, pub text: String, pub values: Vec<f64>, pub next: Option<Box<Record>> }}
impl Shape for Record {{
  fn size(&self) -> f64 {{ self.values.iter().map(|v| v * {unit}.5).filter(|v| *v > 1.0).sum() }}
  fn name(&self) -> String {{ format!("{{}}-{{:?}}-{unit}", self.text, self.id) }}
}}
impl<T: Clone + Into<i64>> Node<T> {{
  pub fn sum(&self) -> i64 {{ match self {{
    Node::Leaf(v) => v.clone().into(),
    Node::Pair(a, b) => a.sum() - b.sum() * {unit},
    Node::Named(name, all) => all.iter().cloned().map(Into::into).sum::<i64>() + name.len() as i64,
    Node::Empty => 0 }} }}
}}
pub type Found = (HashMap<String, Vec<{kind}>>, BTreeMap<usize, Record>);
pub fn work(text: &str) -> Result<Found, String> {{
  let mut index: HashMap<String, Vec<{kind}>> = HashMap::new();
  let mut records = BTreeMap::new();
  for (number, word) in text.split_whitespace().enumerate() {{
    let value = word.parse().map_err(|e| format!("{{e}}"))?;
    index.entry(word.to_lowercase()).or_default().push(value);
    let text = word.chars().rev().collect();
    records.insert(number, Record {{ text, ..Default::default() }});
  }}
  let mut sorted: Vec<_> = records.values().cloned().collect();
  sorted.sort_by(|a, b| b.partial_cmp(a).unwrap());
  let shapes: Vec<Box<dyn Shape>> =
    sorted.into_iter().map(|r| Box::new(r) as Box<dyn Shape>).collect();
  if shapes.iter().any(|s| s.size() > {unit}.0) {{ return Err(shapes[0].name()) }}
  Ok((index, records))
}}
pub fn tree(depth: u8) -> Node<{"i32" if unit % 2 else "i16"}> {{
  if depth == 0 {{ return Node::Leaf({unit}) }}
  Node::Pair(Box::new(tree(depth - 1)), Box::new(Node::Empty))
}}
pub fn run(depth: u8) -> i64 {{ tree(depth).sum() }}
}}"""


def linked(part: int, functions: int, parts: int = 1) -> Iterator[str]:
    """One of several C files whose functions call each other; `start` needs a third of them."""
    chance = Random(41 + part)
    for number in range(functions):
        yield f"int g{part}_{number} = {chance.randrange(999)};"
        yield f"static const char *const s{part}_{number}[] = {{"
        yield f' "string {part} {number}", "name {chance.randrange(functions)}" }};'
        to_part, to_number = chance.randrange(part + 1), chance.randrange(number + 1)
        yield f"extern int f{to_part}_{to_number}(int);"
        yield f"int f{part}_{number}(int n) {{ g{part}_{number} += n;"
        yield f" return n < 1 ? s{part}_{number}[n & 1][n & 7]"
        yield f"  : f{to_part}_{to_number}(n - 1) * {chance.randrange(1, 99)}; }}"
    if part == parts - 1:
        needed = [f"f{p}_{n}" for p in range(parts) for n in range(0, functions, 3)]
        yield from (f"extern int {name}(int);" for name in needed)
        yield f"int (*const start[])(int) = {{ {', '.join(needed)} }};"


def puzzle(size: int) -> Iterator[str]:
    """Colours for a graph, and a path through it, as a logic program."""
    chance = Random(43)
    yield f"node(1..{size}). colour(1..4)."
    for one in range(1, size + 1):
        for _ in range(2):
            yield f"edge({one},{chance.randrange(1, size + 1)})."
        yield f"edge({one},{one % size + 1})."
    yield "1 { paint(N,C) : colour(C) } 1 :- node(N)."
    yield ":- edge(A,B), A != B, paint(A,C), paint(B,C)."
    yield "reach(A,B) :- edge(A,B). reach(A,C) :- reach(A,B), edge(B,C)."
    yield "same(A,B) :- paint(A,C), paint(B,C), reach(A,B), A < B."
    yield "#show paint/2."


def tables(seed: int, rows: int) -> Iterator[str]:
    """SQL of a shop, a statement each: rows, indexes, look-ups, joins and groups."""
    chance = Random(seed)
    few = rows // 10 + 1
    yield "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(80), city VARCHAR(40))"
    yield (
        "CREATE TABLE orders (id INT PRIMARY KEY, customer INT, amount DOUBLE,"
        " note VARCHAR(200), INDEX (customer))"
    )
    for number in range(few):
        name, city = chance.randrange(9999), chance.randrange(300)
        yield f"INSERT INTO customers VALUES ({number},'name {name}','city {city}')"
    for number in range(rows):
        customer, amount = chance.randrange(few), chance.randrange(10**6) / 4
        note = "note " * chance.randrange(20)
        yield f"INSERT INTO orders VALUES ({number},{customer},{amount},'{note}{number}')"
        if number % 4 == 0:
            yield (
                "SELECT name, COUNT(*), SUM(amount) FROM customers JOIN orders"
                f" ON customer = customers.id WHERE customers.id = {customer} GROUP BY name"
            )
        if number % 9 == 0:
            yield f"UPDATE orders SET note = CONCAT('seen ', note) WHERE customer = {customer}"
    yield (
        "SELECT city, COUNT(*), SUM(amount), MAX(note) FROM orders"
        " JOIN customers ON customers.id = customer GROUP BY city ORDER BY city"
    )
    yield "SELECT COUNT(DISTINCT note), COUNT(DISTINCT amount) FROM orders"
    yield "SELECT customer, note, amount FROM orders ORDER BY note DESC, id LIMIT 100"
    yield "DELETE FROM orders WHERE id % 5 = 0"
    yield (
        "SELECT name, GROUP_CONCAT(note ORDER BY orders.id) FROM customers, orders"
        " WHERE customer = customers.id GROUP BY name ORDER BY name LIMIT 50"
    )
