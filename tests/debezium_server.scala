/** Debezium's engine, whose changes go to Pulsar as Debezium Server's Pulsar sink sends them, as JSON. */
package lakehouse.tests

import java.io.FileReader
import java.nio.charset.StandardCharsets.UTF_8
import java.util.{List => JavaList, Properties}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import io.debezium.engine.{ChangeEvent, DebeziumEngine}
import io.debezium.engine.format.{Json, KeyValueHeaderChangeEventFormat}
import io.debezium.engine.spi.OffsetCommitPolicy
import org.apache.pulsar.client.api.{Producer, PulsarClient, Schema}

/** What Debezium Server does: a producer a topic, of the first value's type; a key of `default` if there is none. */
class Sink(client: PulsarClient, namespace: String) extends DebeziumEngine.ChangeConsumer[ChangeEvent[String, String]] {
  private val producers = mutable.Map.empty[String, Producer[Any]]

  override def handleBatch(
      changes: JavaList[ChangeEvent[String, String]],
      committer: DebeziumEngine.RecordCommitter[ChangeEvent[String, String]]
  ): Unit = {
    val sent = changes.asScala.map { change =>
      val message = producer(change).newMessage.key(Option(change.key).getOrElse("default")).value(change.value)
      change.headers[AnyRef].asScala.foreach(header => message.property(header.getKey, text(header.getValue)))
      message.sendAsync
    }
    producers.values.foreach(_.flush())
    sent.foreach(_.get)
    changes.forEach(committer.markProcessed(_))
    committer.markBatchFinished()
  }

  private def producer(change: ChangeEvent[String, String]): Producer[Any] =
    producers.getOrElseUpdate(
      change.destination, {
        val schema = if (change.value == null) Schema.BYTES else Schema.STRING
        client.newProducer(schema.asInstanceOf[Schema[Any]]).topic(s"$namespace/${change.destination}").create
      }
    )

  private def text(value: AnyRef): String = value match {
    case bytes: Array[Byte] => new String(bytes, UTF_8)
    case other              => String.valueOf(other)
  }
}

object DebeziumServer {
  def main(arguments: Array[String]): Unit = {
    val Array(url, namespace, file) = arguments
    val properties = new Properties
    properties.load(new FileReader(file))
    val client = PulsarClient.builder.serviceUrl(url).build
    val format = KeyValueHeaderChangeEventFormat.of(classOf[Json], classOf[Json], classOf[Json])
    val done: DebeziumEngine.CompletionCallback = (succeeded, message, error) =>
      if (!succeeded) {
        System.err.println(s"$message $error")
        Option(error).foreach(_.printStackTrace())
      }
    val engine = DebeziumEngine.create[String, String, String, Json, Json, Json](format).using(properties).using(done).using(OffsetCommitPolicy.always)
      .notifying(new Sink(client, namespace)).build
    sys.addShutdownHook(engine.close())
    engine.run()
    client.close()
  }
}
