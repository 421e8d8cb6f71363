import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/** Prints a summary of work that makes the virtual machine allocate outside its heap. */
public class Churn {
  /** Direct buffers and native compressors, both of which live in malloc's heap. */
  static long compress(int seed, int rounds) throws Exception {
    Random chance = new Random(seed);
    CRC32 sum = new CRC32();
    for (int round = 0; round < rounds; round++) {
      int size = 1 + chance.nextInt(60_000);
      ByteBuffer source = ByteBuffer.allocateDirect(size);
      while (source.hasRemaining()) {
        source.put((byte) (chance.nextInt(4) + round));
      }
      source.flip();
      Deflater deflater = new Deflater(1 + chance.nextInt(9));
      deflater.setInput(source.duplicate());
      deflater.finish();
      ByteBuffer packed = ByteBuffer.allocateDirect(size + 1000);
      while (!deflater.finished()) {
        deflater.deflate(packed);
      }
      deflater.end();
      packed.flip();
      sum.update(packed.duplicate());
      Inflater inflater = new Inflater();
      inflater.setInput(packed);
      ByteBuffer restored = ByteBuffer.allocateDirect(size);
      inflater.inflate(restored);
      inflater.end();
      if (!restored.flip().equals(source)) {
        throw new AssertionError("the data changed");
      }
    }
    return sum.getValue();
  }

  /** Objects of the collected heap, many of which die young. */
  static String objects(int seed) {
    Random chance = new Random(seed);
    TreeMap<String, List<String>> live = new TreeMap<>();
    for (int step = 0; step < 30_000; step++) {
      live.computeIfAbsent("key" + chance.nextInt(3000), key -> new ArrayList<>())
          .add("x".repeat(chance.nextInt(50)) + step);
      live.remove("key" + chance.nextInt(3000));
    }
    return live.size() + " " + live.toString().hashCode();
  }

  static <T> List<T> inThreads(int threads, List<Callable<T>> tasks) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(threads);
    try {
      List<T> results = new ArrayList<>();
      for (var future : pool.invokeAll(tasks)) {
        results.add(future.get());
      }
      return results;
    } finally {
      pool.shutdown();
    }
  }

  public static void main(String[] arguments) throws Exception {
    System.out.println("objects " + objects(1));
    System.out.println("compress " + compress(1, 150));
    for (int round = 0; round < 3; round++) {
      List<Callable<String>> tasks = new ArrayList<>();
      for (int task = 0; task < 8; task++) {
        int seed = round * 8 + task;
        tasks.add(() -> compress(seed, 30) + " " + objects(seed));
      }
      System.out.println("threads " + inThreads(4, tasks));
    }
    var words = new ConcurrentHashMap<String, Long>();
    IntStream.range(0, 200_000).parallel()
        .forEach(i -> words.merge("w" + i % 1777, (long) i, Long::sum));
    System.out.println("parallel " + words.values().stream().mapToLong(i -> i).sum());
    System.out.println("lambdas " + IntStream.range(0, 300)
        .mapToObj(i -> (Callable<Integer>) () -> Integer.toString(i, 2 + i % 30).hashCode())
        .map(task -> {
          try {
            return task.call();
          } catch (Exception error) {
            throw new AssertionError(error);
          }
        })
        .collect(Collectors.toList()).hashCode());
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 400; i++) {
      Thread thread = new Thread(() -> ByteBuffer.allocateDirect(5000));
      thread.start();
      threads.add(thread);
    }
    for (Thread thread : threads) {
      thread.join();
    }
    System.out.println("short threads " + threads.size());
  }
}
