import java.util.HashMap;
import java.util.Map;

/** Fills a map with strings in insertAll(), and keeps it. */
public class Fill {
    private static final Map<Integer, String> ALL = new HashMap<>();

    private static void insertAll() {
        for (int i = 0; i < 1_500_000; i++) {
            ALL.put(i, "x" + i + "yyyyyyyyyyyyyyyyyyyyyyyyyy");
        }
    }

    public static void main(String[] args) throws InterruptedException {
        insertAll();
        Thread.sleep(Long.MAX_VALUE);
    }
}
