# Rounds of what Ruby programs do: build objects and trees, read and write JSON, cut and
# join strings, group and sort records, compile code. Prints a checksum of each round.
require 'json'

Node = Struct.new(:left, :right)
Record = Struct.new(:id, :name, :tags, :body)

def tree(depth)
  depth.zero? ? Node.new : Node.new(tree(depth - 1), tree(depth - 1))
end

def count(node)
  node.left ? 1 + count(node.left) + count(node.right) : 1
end

def documents(chance)
  texts = Array.new(150) do
    fields = Array.new(25) do |i|
      deep = { 'deep' => [chance.rand] * 4 }
      ["field#{i}", [chance.rand(10**9), 'text ' * chance.rand(30), deep]]
    end
    JSON.generate(fields.to_h)
  end
  texts.sum { |text| JSON.generate(JSON.parse(text)).length }
end

def words(chance)
  between = %w[and or not]
  text = Array.new(12_000) { "word#{chance.rand(2000)} #{between[chance.rand(3)]}" }.join(', ')
  counts = text.scan(/[a-z]+\d*/).tally
  changed = text.gsub(/word(\d)(\d*)/) { "<#{$2}#{$1}>" }.split(', ').map(&:capitalize)
  changed.sort.join.sum + counts.sort_by { |word, times| [-times, word] }.first.last
end

# Records that come and go; some stay from round to round.
LIVE = {}
def records(chance)
  40_000.times do |step|
    key = "record #{chance.rand(20_000)}"
    if LIVE.key?(key)
      LIVE.delete(key)
    else
      LIVE[key] = Record.new(step, key * 2, [step % 7, key[-1]], 'b' * chance.rand(200))
    end
  end
  groups = LIVE.values.group_by { |record| record.tags }
  groups.sum { |tags, members| tags.first * members.map(&:body).sum(&:length) }
end

def compiled(round)
  source = Array.new(300) do |i|
    "def part#{i}(a, b = #{round}) [a, \"\#{b} #{i}\", { k: #{i} }] end"
  end
  part = Object.new
  part.instance_eval(source.join("\n"))
  Array.new(300) { |i| part.public_send("part#{i}", i) }.flatten.length
end

Integer(ARGV[0]).times do |round|
  chance = Random.new(round)
  puts [round, count(tree(14)), documents(chance), words(chance), records(chance),
        compiled(round)].join(' ')
end
