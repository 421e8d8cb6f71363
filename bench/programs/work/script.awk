# awk: words counted, indexed by line, and put together again. Prints what it found.
{
    for (n = 1; n <= NF; n++) {
        word = tolower($n)
        gsub(/[^a-z]/, "", word)
        count[word]++
        where[word, NR % 500] = where[word, NR % 500] " " NR
        if (match(word, /(cat|al)+/)) found[substr(word, RSTART, RLENGTH)]++
    }
    line[NR] = $0
}
END {
    total = asorti(count, sorted)
    for (n = 1; n <= total; n += 97) print sorted[n], count[sorted[n]]
    for (n = 1; n <= NR; n += 3) { split(line[n], part, /[.] */); sum += length(part[1]) }
    print length(where), length(found), sum
}
