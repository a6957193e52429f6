import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.acl.plain.PlainAccessValidator;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** RocketMQ's own access validator, with the files below -Drocketmq.home.dir: a request a line in, a verdict a line out. */
public class JudgeRequests {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        PlainAccessValidator validator = new PlainAccessValidator();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            RemotingCommand command = RemotingCommand.createRequestCommand(asked.getIntValue("code"), null);
            HashMap<String, String> ext = new HashMap<>();
            for (Map.Entry<String, Object> field : asked.getJSONObject("ext").entrySet()) {
                ext.put(field.getKey(), String.valueOf(field.getValue()));
            }
            command.setExtFields(ext);
            byte[] body = Base64.getDecoder().decode(asked.getString("body"));
            command.setBody(body.length == 0 ? null : body);
            String verdict = "";
            try {
                validator.validate(validator.parse(command, asked.getString("peer")));
            } catch (Throwable refusal) {
                verdict = String.valueOf(refusal);
            }
            out.println("VERDICT " + verdict.replace('\n', ' '));
        }
        out.flush();
        System.exit(0);
    }
}
