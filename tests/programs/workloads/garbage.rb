# Prints a summary of work in objects, threads, fibers and processes.
require 'digest'
require 'json'
require 'set'
require 'zlib'

def summary(label, value)
  puts "#{label} #{Digest::SHA256.hexdigest(value.inspect)}"
end

def documents(seed, count)
  chance = Random.new(seed)
  Array.new(count) do
    document = Array.new(chance.rand(40)) do
      ["key#{chance.rand(500)}", ['x' * chance.rand(300), chance.rand, [1] * chance.rand(50)]]
    end.to_h
    raise 'a document changed' unless JSON.parse(JSON.generate(document)) == document

    Zlib::Inflate.inflate(Zlib::Deflate.deflate(document.to_s)).hash == 0 ? 0 : document.size
  end
end

summary 'documents', documents(1, 800)

chance = Random.new(2)
live = {}
60_000.times do |step|
  live["k#{chance.rand(8000)}"] = [step, 'v' * chance.rand(200), :"symbol#{chance.rand(300)}"]
  live.delete("k#{chance.rand(8000)}")
end
summary 'hash', live.sort

text = Array.new(30_000) { "#{('a'..'z').to_a[chance.rand(26)]}#{chance.rand(100)}" }.join(' ')
summary 'text', [text.scan(/[a-m]\d+/).tally.sort, text.gsub(/(\w)(\d)/) { "#{$2}#{$1 * 3}" }]

GC.stress = true
summary 'under stress', Array.new(8) { |i| Set.new([i.to_s * 9, [i] * i]).to_a }
GC.stress = false
GC.compact
summary 'after compaction', live.sort

threads = Array.new(6) { |i| Thread.new { documents(i, 120) } }
summary 'threads', threads.map(&:value)

queue = SizedQueue.new(50)
consumers = Array.new(3) { Thread.new { Array.new(800) { queue.pop.sum } } }
2400.times { |i| queue << Array.new(i % 300) { |n| n ^ i } }
summary 'queue', consumers.sum { |consumer| consumer.value.sum }

fibers = Array.new(300) { |i| Fiber.new { 20.times { |n| Fiber.yield 'f' * (i + n) } } }
summary 'fibers', Array.new(20) { fibers.map(&:resume) }

4.times do |child|
  reader, writer = IO.pipe
  process = fork do
    writer.write(documents(child, 150).inspect)
    exit!(0)
  end
  writer.close
  summary "process #{child}", reader.read
  Process.wait(process)
  raise 'a process failed' unless $?.success?
end
