import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;

/** A catalogue in a Java server: some articles are asked for again and again, and new ones replace old ones. */
class Catalogue {
    static final int ARTICLES = 400_000;

    public static void main(String[] arguments) throws Exception {
        Map<Integer, String> articles = new HashMap<>();
        for (int i = 0; i < ARTICLES; i++) articles.put(i, article(i));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            int number = Integer.parseInt(exchange.getRequestURI().getPath().substring(1));
            byte[] text = articles.get(number).getBytes();
            exchange.sendResponseHeaders(200, text.length);
            try (var body = exchange.getResponseBody()) {
                body.write(text);
            }
        });
        server.start();

        HttpClient client = HttpClient.newHttpClient();
        String base = "http://127.0.0.1:" + server.getAddress().getPort() + "/";
        Random random = new Random(1);
        long printed = 0;
        for (long done = 1; ; done++) {
            int number = (int) (ARTICLES * (random.nextInt(100) > 0 ? random.nextDouble() / 40 : random.nextDouble()));
            client.send(HttpRequest.newBuilder(URI.create(base + number)).build(), HttpResponse.BodyHandlers.ofString());
            if (done % 16 == 0) articles.put(number, article(number));
            if (System.nanoTime() - printed > 50_000_000) {
                printed = System.nanoTime();
                System.out.println("done " + done);
            }
        }
    }

    static String article(int number) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 30; i++) text.append("article ").append(number * 31L + i).append(", as described above; ");
        return text.toString();
    }
}
