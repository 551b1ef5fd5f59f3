import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.CanalPacket;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Rewrites canal-json messages as packets of canal's own library, laid out as classic TiCDC's encoder lays them out.
 *
 * <p>Standard input: a capture of canal-json, one JSON object a line. Standard output: the same of canal. Up to seven
 * entries of a partition that follow each other share a packet; a DDL has one of its own, as in TiCDC. Now and then rows
 * of one table and type become one entry with several rows, which canal's own server writes.
 */
public final class CanalVectors {
  private static final int ROWS_A_PACKET = 7;
  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final Map<Integer, List<CanalEntry.Entry>> waiting = new LinkedHashMap<>();
  private final Map<Integer, Long> offsets = new HashMap<>();
  private long appended = 0;

  public static void main(String[] args) throws Exception {
    new CanalVectors().run();
  }

  private void run() throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null; ) {
      JSONObject message = JSONObject.parseObject(line);
      byte[] value = Base64.getDecoder().decode(message.getString("value"));
      JSONObject event = JSONObject.parseObject(new String(value, StandardCharsets.UTF_8));
      int partition = message.getIntValue("partition");
      if (event.getBooleanValue("isDdl")) {
        flush(partition);
        waiting.put(partition, new ArrayList<>(List.of(ddl(event))));
        flush(partition);
        continue;
      }
      List<CanalEntry.Entry> batch = waiting.computeIfAbsent(partition, p -> new ArrayList<>());
      add(batch, rows(event));
      if (batch.size() >= ROWS_A_PACKET) {
        flush(partition);
      }
    }
    for (Integer partition : List.copyOf(waiting.keySet())) {
      flush(partition);
    }
    out.flush();
  }

  /** Append an entry, or, every third time, its rows to the last one where that is of the same kind. */
  private void add(List<CanalEntry.Entry> batch, CanalEntry.Entry entry) throws Exception {
    if (!batch.isEmpty() && appended++ % 3 == 0) {
      CanalEntry.Entry last = batch.get(batch.size() - 1);
      CanalEntry.Header a = last.getHeader(), b = entry.getHeader();
      if (a.getTableName().equals(b.getTableName()) && a.getSchemaName().equals(b.getSchemaName())
          && a.getEventType() == b.getEventType()) {
        CanalEntry.RowChange more = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
        CanalEntry.RowChange.Builder change = CanalEntry.RowChange.parseFrom(last.getStoreValue()).toBuilder();
        change.addAllRowDatas(more.getRowDatasList());
        batch.set(batch.size() - 1, last.toBuilder().setStoreValue(change.build().toByteString()).build());
        return;
      }
    }
    batch.add(entry);
  }

  private static CanalEntry.Header.Builder header(JSONObject event, CanalEntry.EventType type) {
    return CanalEntry.Header.newBuilder()
        .setVersion(1)
        .setServerenCode("UTF-8")
        .setExecuteTime(event.getLongValue("es"))
        .setSourceType(CanalEntry.Type.MYSQL)
        .setSchemaName(event.getString("database"))
        .setTableName(event.getString("table"))
        .setEventType(type);
  }

  private static CanalEntry.Entry entry(CanalEntry.Header.Builder header, CanalEntry.RowChange change) {
    return CanalEntry.Entry.newBuilder()
        .setHeader(header)
        .setEntryType(CanalEntry.EntryType.ROWDATA)
        .setStoreValue(change.toByteString())
        .build();
  }

  private static CanalEntry.Entry ddl(JSONObject event) {
    CanalEntry.EventType type = CanalEntry.EventType.valueOf(event.getString("type"));
    CanalEntry.RowChange change = CanalEntry.RowChange.newBuilder()
        .setEventType(type)
        .setIsDdl(true)
        .setSql(event.getString("sql"))
        .setDdlSchemaName(event.getString("database"))
        .build();
    return entry(header(event, type), change);
  }

  private static CanalEntry.Entry rows(JSONObject event) {
    CanalEntry.EventType type = CanalEntry.EventType.valueOf(event.getString("type"));
    CanalEntry.RowChange.Builder change = CanalEntry.RowChange.newBuilder().setEventType(type).setIsDdl(false);
    JSONArray data = event.getJSONArray("data"), old = event.getJSONArray("old");
    for (int i = 0; i < data.size(); i++) {
      CanalEntry.RowData.Builder row = CanalEntry.RowData.newBuilder();
      boolean delete = type == CanalEntry.EventType.DELETE;
      if (delete) {
        row.addAllBeforeColumns(image(event, data.getJSONObject(i), false));
      } else {
        row.addAllAfterColumns(image(event, data.getJSONObject(i), true));
      }
      if (old != null) {
        row.addAllBeforeColumns(image(event, old.getJSONObject(i), true));
      }
      change.addRowDatas(row);
    }
    CanalEntry.Pair count = CanalEntry.Pair.newBuilder().setKey("rowsCount").setValue("1").build();
    return entry(header(event, type).addProps(count), change.build());
  }

  private static List<CanalEntry.Column> image(JSONObject event, JSONObject image, boolean updated) {
    JSONObject sqlTypes = event.getJSONObject("sqlType"), mysqlTypes = event.getJSONObject("mysqlType");
    JSONArray keys = event.getJSONArray("pkNames");
    List<CanalEntry.Column> columns = new ArrayList<>();
    for (Map.Entry<String, Object> column : image.entrySet()) {
      String name = column.getKey();
      columns.add(CanalEntry.Column.newBuilder()
          .setSqlType(sqlTypes.getIntValue(name))
          .setName(name)
          .setIsKey(keys != null && keys.contains(name))
          .setUpdated(updated)
          .setIsNull(column.getValue() == null)
          .setValue(column.getValue() == null ? "" : (String) column.getValue())
          .setMysqlType(mysqlTypes.getString(name))
          .build());
    }
    return columns;
  }

  private void flush(int partition) {
    List<CanalEntry.Entry> batch = waiting.remove(partition);
    if (batch == null || batch.isEmpty()) {
      return;
    }
    CanalPacket.Messages.Builder messages = CanalPacket.Messages.newBuilder();
    for (CanalEntry.Entry entry : batch) {
      messages.addMessages(entry.toByteString());
    }
    CanalPacket.Packet packet = CanalPacket.Packet.newBuilder()
        .setVersion(1)
        .setType(CanalPacket.PacketType.MESSAGES)
        .setBody(ByteString.copyFrom(messages.build().toByteArray()))
        .build();
    JSONObject line = new JSONObject();
    line.put("topic", "small");
    line.put("partition", partition);
    line.put("offset", offsets.merge(partition, 1L, Long::sum) - 1);
    line.put("key", null);
    line.put("value", Base64.getEncoder().encodeToString(packet.toByteArray()));
    out.println(line.toString(JSONWriter.Feature.WriteMapNullValue));
  }
}
