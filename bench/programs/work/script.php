<?php
// PHP: objects, arrays, templates and JSON, as a web shop makes its pages. Prints what it found.
// Usage: script.php ITEMS

class Item
{
    public function __construct(public string $name, public float $price, public array $tags)
    {
    }
}

mt_srand(5);
$items = [];
for ($number = 0; $number < (int) $argv[1]; $number++) {
    $tags = array_map(fn ($tag) => "tag$tag", [mt_rand(0, 99), mt_rand(0, 999)]);
    $items[] = new Item("item " . dechex(mt_rand()), mt_rand(1, 99999) / 100, $tags);
}
$byTag = [];
foreach ($items as $item) {
    foreach ($item->tags as $tag) {
        $byTag[$tag][] = $item;
    }
}
ksort($byTag);
$page = '';
foreach ($byTag as $tag => $found) {
    usort($found, fn ($one, $other) => [$one->price, $one->name] <=> [$other->price, $other->name]);
    $rows = array_map(
        fn ($item) => sprintf('<tr><td>%s</td><td>%.2f</td></tr>', htmlspecialchars($item->name), $item->price),
        array_slice($found, 0, 40)
    );
    $page .= "<h2>$tag</h2><table>" . implode("\n", $rows) . '</table>';
}
$text = json_encode($items);
$back = json_decode($text, true);
preg_match_all('/<td>([\w ]+)<\/td>/', $page, $matches);
$names = array_count_values(array_map('ucwords', $matches[1]));
echo md5($page), ' ', md5($text), ' ', count($back), ' ', count($names), "\n";
