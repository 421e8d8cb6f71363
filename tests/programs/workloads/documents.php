<?php
// Prints a summary of work in extensions: documents, a database, texts, archives.
mt_srand(7);

function document(int $count): DOMDocument {
    $document = new DOMDocument('1.0', 'UTF-8');
    $root = $document->appendChild($document->createElement('catalogue'));
    for ($i = 0; $i < $count; ++$i) {
        $item = $root->appendChild($document->createElement('item', str_repeat('é' . $i, mt_rand(1, 40))));
        $item->setAttribute('id', (string)$i);
        $item->setAttribute('price', (string)mt_rand(1, 5000));
    }
    return $document;
}

$sum = 0;
for ($round = 0; $round < 20; ++$round) {
    $text = document(400)->saveXML();
    $simple = simplexml_load_string($text);
    foreach ($simple->xpath('//item[@price > 2500]') as $item) {
        $sum += mb_strlen((string)$item) + (int)$item['price'];
    }
    $style = new DOMDocument();
    $style->loadXML('<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        . '<xsl:template match="/"><sum><xsl:value-of select="sum(//@price)"/></sum></xsl:template>'
        . '</xsl:stylesheet>');
    $processor = new XSLTProcessor();
    $processor->importStylesheet($style);
    $source = new DOMDocument();
    $source->loadXML($text);
    $sum += (int)simplexml_load_string($processor->transformToXml($source));
    $reader = XMLReader::XML($text);
    while ($reader->read()) {
        $sum += strlen($reader->value);
    }
}
echo "documents $sum\n";

$database = new PDO('sqlite::memory:');
$database->exec('CREATE TABLE words (word TEXT, length INTEGER)');
$insert = $database->prepare('INSERT INTO words VALUES (?, ?)');
$database->beginTransaction();
for ($i = 0; $i < 20000; ++$i) {
    $word = mb_strtoupper(str_repeat(chr(97 + $i % 26), 1 + $i % 97));
    $insert->execute([$word, mb_strlen($word)]);
}
$database->commit();
foreach ($database->query('SELECT length, count(*), max(word) FROM words GROUP BY length ORDER BY length') as $row) {
    $sum += $row[0] * $row[1] + crc32($row[2]);
}
echo "database $sum\n";

for ($i = 1; $i < 60; ++$i) {
    $text = str_repeat(json_encode(range(0, $i * 20)), $i);
    $sum += strlen(gzuncompress(gzcompress($text, 1 + $i % 9))) + strlen(iconv('UTF-8', 'UTF-16LE', $text));
    $sum += preg_match_all('/[1-9]+(?=,)/', $text, $found) + count(array_unique($found[0]));
}
echo "texts $sum\n";
