/** Sends messages by Pulsar's own Java client. Reads a command a line from stdin, as JSON, and answers with a line. */
package lakehouse.tests

import java.io.{FileOutputStream, FileDescriptor, PrintStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.{Instant, LocalDate, LocalDateTime, LocalTime}
import java.util.concurrent.{CompletableFuture, Semaphore, TimeUnit}
import java.util.{Base64, Date}

import scala.collection.mutable
import scala.io.Source
import scala.jdk.CollectionConverters._
import scala.util.Try

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.google.protobuf.DynamicMessage
import com.google.protobuf.util.JsonFormat
import org.apache.avro.generic.{GenericDatumReader, GenericRecord}
import org.apache.avro.io.DecoderFactory
import org.apache.pulsar.client.api._
import org.apache.pulsar.client.api.schema.Field
import org.apache.pulsar.client.api.transaction.Transaction
import org.apache.pulsar.client.impl.schema.ProtobufNativeSchemaUtils
import org.apache.pulsar.client.impl.schema.generic.{GenericAvroRecord, GenericJsonRecord}
import org.apache.pulsar.common.schema.{KeyValue, KeyValueEncodingType, SchemaInfo, SchemaType}

/** A schema whose values are JSON, written by Pulsar's schema of this type; bytes are sent as they are. */
class Typed(info: SchemaInfo) extends Schema[JsonNode] {
  private lazy val writer = Schema.getSchema(info).asInstanceOf[Schema[Any]]
  private lazy val text = new String(info.getSchema, UTF_8)
  private lazy val avro = new org.apache.avro.Schema.Parser().parse(text)
  private lazy val fields = avro.getFields.asScala.map(field => new Field(field.name, field.pos)).asJava

  override def getSchemaInfo: SchemaInfo = info
  override def clone(): Schema[JsonNode] = new Typed(info)
  override def encode(value: JsonNode): Array[Byte] =
    if (value.has("base64")) JavaClient.bytes(value)
    else if (info.getType == SchemaType.PROTOBUF_NATIVE) protobuf(value)
    else writer.encode(javaValue(value))

  private def javaValue(value: JsonNode): Any = info.getType match {
    case SchemaType.AVRO    => new GenericAvroRecord(null, avro, fields, record(value))
    case SchemaType.JSON    => new GenericJsonRecord(null, fields, value, info)
    case SchemaType.STRING  => value.textValue
    case SchemaType.BOOLEAN => value.booleanValue
    case SchemaType.INT8    => value.intValue.toByte
    case SchemaType.INT16   => value.shortValue
    case SchemaType.INT32   => value.intValue
    case SchemaType.INT64   => value.longValue
    case SchemaType.FLOAT   => value.floatValue
    case SchemaType.DOUBLE  => value.doubleValue
    case SchemaType.DATE    => Date.from(Instant.parse(value.textValue))
    case SchemaType.TIME    => java.sql.Time.valueOf(value.textValue)
    case SchemaType.TIMESTAMP       => java.sql.Timestamp.from(Instant.parse(value.textValue))
    case SchemaType.INSTANT         => Instant.parse(value.textValue)
    case SchemaType.LOCAL_DATE      => LocalDate.parse(value.textValue)
    case SchemaType.LOCAL_TIME      => LocalTime.parse(value.textValue)
    case SchemaType.LOCAL_DATE_TIME => LocalDateTime.parse(value.textValue)
  }

  /** A record in Avro's own JSON: `{"string": "x"}` for a value of a union. */
  private def record(value: JsonNode): GenericRecord =
    new GenericDatumReader[GenericRecord](avro).read(null, DecoderFactory.get.jsonDecoder(avro, value.toString))

  private def protobuf(value: JsonNode): Array[Byte] = {
    val message = DynamicMessage.newBuilder(ProtobufNativeSchemaUtils.deserialize(info.getSchema))
    JsonFormat.parser.merge(value.toString, message)
    message.build.toByteArray
  }
}

object JavaClient {
  private val json = new ObjectMapper
  private val transactions = mutable.Map.empty[String, Transaction]

  def main(arguments: Array[String]): Unit = {
    val answers = new PrintStream(new FileOutputStream(FileDescriptor.out))
    System.setOut(System.err) // to which the client logs
    val Array(url, coordinated) = arguments
    val client = PulsarClient.builder.serviceUrl(url).enableTransaction(coordinated.toBoolean).build
    for (line <- Source.stdin.getLines()) {
      val answer = Try(done(client, json.readTree(line))).fold(error => Map("error" -> error.toString), identity)
      answers.println(json.writeValueAsString(answer.asJava))
      answers.flush()
    }
    client.close()
  }

  private def done(client: PulsarClient, command: JsonNode): Map[String, Any] = command.get("do").textValue match {
    case "begin" =>
      val timeout = command.get("seconds").longValue
      val begun = client.newTransaction.withTransactionTimeout(timeout, TimeUnit.SECONDS).build.get
      transactions(begun.getTxnID.toString) = begun
      Map("transaction" -> begun.getTxnID.toString)
    case "commit" => transactions.remove(command.get("transaction").textValue).get.commit.get; Map.empty
    case "abort"  => transactions.remove(command.get("transaction").textValue).get.abort.get; Map.empty
    case "send"   => Map("ids" -> sent(client, command).asJava)
    case "send committed" => Map("ids" -> committed(client, command).asJava)
  }

  private def sent(client: PulsarClient, command: JsonNode): Seq[String] = {
    val given = command.get("producer")
    val builder = client.newProducer(schema(command.get("schema"))).topic(command.get("topic").textValue)
    builder.blockIfQueueFull(true).enableBatching(given.path("batched").asBoolean).batchingMaxMessages(1000)
    builder.batchingMaxPublishDelay(1, TimeUnit.MINUTES).sendTimeout(0, TimeUnit.SECONDS)
    Option(given.get("chunk_bytes")).foreach(size => builder.enableChunking(true).chunkMaxMessageSize(size.intValue))
    Option(given.get("compression")).foreach(name => builder.compressionType(CompressionType.valueOf(name.textValue)))
    Option(given.get("public_keys")).foreach { files =>
      val keys = files.properties.asScala.map(key => key.getKey -> s"file://${key.getValue.textValue}").toMap
      builder.defaultCryptoKeyReader(keys.asJava)
      keys.keys.foreach(builder.addEncryptionKey)
    }
    val producer = builder.create
    val transaction = Option(command.get("transaction")).map(name => transactions(name.textValue)).orNull
    val ids = command.get("messages").elements.asScala.map(send(producer, transaction, _)).toList
    finished(producer, ids)
    ids.map(_.get.toString)
  }

  /** Sends so many messages in each transaction, some of which are open at once. */
  private def committed(client: PulsarClient, command: JsonNode): Seq[String] = {
    val producer = client.newProducer(schema(command.get("schema"))).topic(command.get("topic").textValue)
      .enableBatching(false).sendTimeout(0, TimeUnit.SECONDS).create
    val open = new Semaphore(100)
    val ends = command.get("messages").elements.asScala.grouped(command.get("each").intValue).map { messages =>
      open.acquire()
      val begun = client.newTransaction.withTransactionTimeout(1, TimeUnit.HOURS).build
      val ended = begun.thenCompose { transaction =>
        val sent = messages.map(send(producer, transaction, _)).toList
        CompletableFuture.allOf(sent: _*).thenCompose(_ => transaction.commit).thenApply(_ => sent)
      }
      ended.whenComplete((_, _) => open.release())
    }.toList
    finished(producer, ends)
    ends.flatMap(_.get).map(_.get.toString)
  }

  private def finished(producer: Producer[Any], sent: Seq[CompletableFuture[_]]): Unit = {
    while (!sent.forall(_.isDone)) producer.flush() // messages of transactions wait for the coordinator
    producer.close()
  }

  private def send(to: Producer[Any], in: Transaction, given: JsonNode): CompletableFuture[MessageId] = {
    val message = if (in == null) to.newMessage else to.newMessage(in)
    Option(given.get("key")).foreach(key => if (key.isTextual) message.key(key.textValue) else message.keyBytes(bytes(key)))
    Option(given.get("event_time")).foreach(time => message.eventTime(time.longValue))
    given.path("properties").properties.asScala.foreach(each => message.property(each.getKey, each.getValue.textValue))
    val value = given.path("value")
    if (value.has("pair")) {
      val pair = value.get("pair")
      message.value(new KeyValue(present(pair.get(0)), present(pair.get(1))))
    } else message.value(present(value))
    message.sendAsync
  }

  private def present(value: JsonNode): JsonNode = if (value.isNull || value.isMissingNode) null else value

  private def schema(given: JsonNode): Schema[Any] = {
    val found = given.get("type").textValue match {
      case "KEY_VALUE" =>
        val encoding = KeyValueEncodingType.valueOf(given.get("encoding").textValue)
        Schema.KeyValue(schema(given.get("key")), schema(given.get("value")), encoding)
      case name =>
        val text = given.path("schema")
        val properties = given.path("properties").properties.asScala.map(each => each.getKey -> each.getValue.textValue)
        new Typed(
          SchemaInfo.builder.name("").`type`(SchemaType.valueOf(name)).properties(properties.toMap.asJava)
            .schema(text.asText("").getBytes(UTF_8)).build
        )
    }
    found.asInstanceOf[Schema[Any]]
  }

  def bytes(value: JsonNode): Array[Byte] = Base64.getDecoder.decode(value.get("base64").textValue)
}
