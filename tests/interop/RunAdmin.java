import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's mqadmin, many commands in one process: a JSON list of words a line in, what it printed as JSON a line out.
 * A command that goes on for ever is interrupted after -Dseconds.
 */
public class RunAdmin {
    public static void main(String[] args) throws Exception {
        long limit = Long.getLong("seconds", 20) * 1000;
        Field made = MQAdminStartup.class.getDeclaredField("subCommandList");
        made.setAccessible(true);
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = JSON.parseArray(line, String.class).toArray(new String[0]);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, "UTF-8"));
            System.setErr(new PrintStream(err, true, "UTF-8"));
            ((List<?>) made.get(null)).clear(); // some of them can run once only
            Thread command = new Thread(() -> MQAdminStartup.main0(words, null));
            command.start();
            command.join(limit);
            command.interrupt();
            command.join(limit);
            JSONObject said = new JSONObject();
            said.put("out", out.toString("UTF-8"));
            said.put("err", err.toString("UTF-8"));
            answers.println(said.toJSONString());
        }
        Runtime.getRuntime().halt(0);
    }
}
