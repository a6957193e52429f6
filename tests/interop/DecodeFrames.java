import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Reads frames from standard input with RocketMQ's own decoder and prints what it has understood, one JSON line each. */
public class DecodeFrames {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        DataInputStream in = new DataInputStream(System.in);
        while (true) {
            byte[] frame;
            try {
                frame = new byte[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            in.readFully(frame);
            out.println(JSON.toJSONString(understood(frame), SerializerFeature.MapSortField, SerializerFeature.WriteMapNullValue));
        }
        out.flush();
    }

    private static Map<String, Object> understood(byte[] frame) {
        Map<String, Object> found = new LinkedHashMap<>();
        try {
            RemotingCommand command = RemotingCommand.decode(ByteBuffer.wrap(frame));
            found.put("code", command.getCode());
            found.put("opaque", command.getOpaque());
            found.put("flag", command.getFlag());
            found.put("version", command.getVersion());
            found.put("language", String.valueOf(command.getLanguage()));
            found.put("remark", command.getRemark());
            found.put("ext", command.getExtFields());
            found.put("type", String.valueOf(command.getSerializeTypeCurrentRPC()));
            byte[] body = command.getBody();
            found.put("body", body == null ? "" : Base64.getEncoder().encodeToString(body));
        } catch (Throwable problem) {
            found.put("problem", problem.toString());
        }
        return found;
    }
}
