# Prints a summary of work in strings, hashes, closures, threads and processes.
use strict;
use warnings;
use threads;
use Thread::Queue;
use Storable qw(freeze thaw dclone);
use Digest::SHA qw(sha256_hex);

my $state = 42;

sub chance {
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return $state % shift;
}

sub summary {
    my ($label, @values) = @_;
    print "$label ", sha256_hex(join ',', @values), "\n";
}

sub records {
    my ($count) = @_;
    my %records;
    for my $number (1 .. $count) {
        my $key = 'k' x (1 + chance(20)) . chance(4000);
        push @{ $records{$key}{values} }, chance(100000);
        $records{$key}{text} .= 'x' x chance(400);
        delete $records{ 'k' x (1 + chance(20)) . chance(4000) };
    }
    return \%records;
}

sub flat {
    my ($records) = @_;
    return map { $_, length $records->{$_}{text}, @{ $records->{$_}{values} } }
      sort keys %$records;
}

my $records = records(60000);
summary('records', flat($records));
summary('copies', flat(dclone($records)), flat(thaw(freeze($records))));

my $text = join ' ', map { sprintf '%s%d', ('a' .. 'z')[ chance(26) ], chance(1000) } 1 .. 60000;
my %counts;
$counts{$1}++ while $text =~ /\b([a-m]\d+)\b/g;
(my $edited = $text) =~ s/(\w)(\d+)/$2 . $1 x 3/ge;
summary('words', map { "$_=$counts{$_}" } sort keys %counts);
summary('edited', $edited);
summary('split', sort { $a cmp $b } split /[aeiou\s]+/, $edited);

my @closures = map { my $part = 'p' x $_; sub { length($part) + shift } } 1 .. 3000;
my $total = 0;
$total += $closures[ chance(3000) ]->($_) for 1 .. 50000;
summary('closures', $total);

my $growing = '';
my @kept;
for my $step (1 .. 20000) {
    $growing .= chance(1000);
    push @kept, substr $growing, -chance(500) - 1 if $step % 10 == 0;
    splice @kept, chance(scalar @kept), 1 if @kept > 500;
}
summary('strings', $growing, @kept);

# Every thread clones the interpreter, and frees the clone when it ends.
for my $round (1 .. 4) {
    my $queue = Thread::Queue->new;
    my @threads = map {
        threads->create(sub {
            my $length = 0;
            while (defined(my $item = $queue->dequeue)) {
                $length += length join '', map { $_ x 3 } split //, $item;
            }
            return $length;
        })
    } 1 .. 3;
    $queue->enqueue('y' x $_) for 1 .. 400;
    $queue->end;
    my $length = 0;
    $length += $_->join for @threads;
    summary("threads $round", $length);
}

for my $child (1 .. 4) {
    my $process = open my $pipe, '-|';
    die "fork: $!" unless defined $process;
    if (!$process) {
        $state = $child;
        print sha256_hex(join ',', flat(records(5000)));
        exit 0;
    }
    summary("process $child", <$pipe>);
    close $pipe or die "child: $?";
}
