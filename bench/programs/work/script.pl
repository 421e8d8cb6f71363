# Perl: records in hashes of hashes, text taken apart and put together, sorts, closures.
# Prints what it found. Usage: script.pl RECORDS
use strict;
use warnings;

my $seed = 7;

sub chance {
    my ($most) = @_;
    $seed = ($seed * 1103515245 + 12345) % 2147483648;
    return int($seed / 65536) % $most;
}

my (%people, %words, @lines);
for my $number (1 .. shift) {
    my $name = join '', map { chr(97 + chance(26)) } 1 .. 4;
    push @{$people{$name}{visits}}, { day => chance(365), cost => chance(1000) / 4 };
    $people{$name}{note} .= "visit $number, ";
    push @lines, "$name;$number;" . ('x' x chance(60));
}
for my $line (@lines) {
    my ($name, $number, $rest) = split /;/, $line;
    $words{ucfirst $name} += length $rest;
    $words{$1}++ while $rest =~ /(x{1,7})/g;
    (my $changed = $line) =~ s/([aeiou])/<\u$1>/g;
    $words{substr $changed, 0, 3}++;
}
my @best = sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words;
my @adders = map { my $by = $_; sub { $_[0] + $by } } 1 .. @lines / 10;
my ($sum, $cost) = (0, 0);
$sum = $_->($sum) for @adders;
for my $name (sort keys %people) {
    $cost += $_->{cost} for grep { $_->{day} > 100 } @{$people{$name}{visits}};
}
print "@best $sum $cost ", scalar(keys %people), "\n";
