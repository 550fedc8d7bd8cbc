/** What the SQL endpoint adds to Spark: a check of passwords, and the refusal of all but reading. */
package lakehouse {

import java.io.{ByteArrayInputStream, IOException}
import java.net.{InetAddress, InetSocketAddress, ServerSocket, Socket, URI}
import java.security.{KeyStore, MessageDigest}
import java.util.{Base64, Locale}
import java.util.concurrent.{Executors, SynchronousQueue, ThreadPoolExecutor, TimeUnit}
import javax.crypto.SecretKeyFactory
import javax.crypto.spec.PBEKeySpec
import javax.net.ssl.{KeyManagerFactory, SSLContext, SSLSocket, SSLSocketFactory}
import javax.security.sasl.AuthenticationException

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.hive.service.auth.{HiveAuthFactory, PasswdAuthenticationProvider}
import org.apache.hive.service.cli.{CLIService, HiveSQLException, OperationHandle, OperationState, SessionHandle}
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService
import org.apache.hive.service.rpc.thrift._
import org.apache.hive.service.server.ThreadFactoryWithGarbageCleanup
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog._
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.thrift.TConfiguration
import org.apache.thrift.protocol.TBinaryProtocol
import org.apache.thrift.server.TThreadPoolServer
import org.apache.thrift.transport._

/** The Thrift server's check of a user. The property `lakehouse.users` has a line for each: name, salt, hash of the password. */
class Passwords extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit =
    if (Passwords.accepts(user, password, Visitor.current)) Visitor.welcome(user)
    else throw new AuthenticationException("unknown user or wrong password")
}

object Passwords {
  private val Iterations = 200000
  private val Tries = 5
  private val Forgotten = TimeUnit.MINUTES.toNanos(1)

  /** When a name, of which this has the hash, was tried with a wrong password, by the address that did. */
  private val failures = mutable.Map.empty[(InetAddress, Int), Seq[Long]]

  private lazy val users: Map[String, (Array[Byte], Array[Byte])] =
    sys.props("lakehouse.users").linesIterator.map { line =>
      val Array(name, salt, hash) = line.split(' ')
      (name, (Base64.getDecoder.decode(salt), Base64.getDecoder.decode(hash)))
    }.toMap

  /** One at a time, so that who guesses takes one core at most; an address that has guessed too often must wait. */
  private def accepts(user: String, password: String, visitor: Visitor): Boolean = synchronized {
    val now = System.nanoTime
    failures.mapValuesInPlace((_, times) => times.filter(now - _ < Forgotten)).filterInPlace((_, times) => times.nonEmpty)
    val key = (visitor.address, user.hashCode)
    val earlier = failures.getOrElse(key, Nil)
    earlier.size < Tries && !visitor.hasLeft && {
      val right = isRight(user, password)
      if (right) failures -= key else failures(key) = earlier :+ now
      right
    }
  }

  /** As slow for a user who is not known, so that names can't be told by the time it takes. */
  private def isRight(user: String, password: String): Boolean = {
    val (salt, hash) = users.getOrElse(user, nobody)
    MessageDigest.isEqual(hash, hashed(password, salt)) && users.contains(user)
  }

  private val nobody = (new Array[Byte](16), new Array[Byte](32))

  private def hashed(password: String, salt: Array[Byte]): Array[Byte] = {
    val spec = new PBEKeySpec(password.toCharArray, salt, Iterations, 256)
    SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(spec).getEncoded
  }
}

/** A connection. Until somebody has logged in, it is a stranger's, and may be closed at any time. */
class Visitor(connection: Socket, socket: Socket, service: CLIService) extends TSocket(socket) {
  val address: InetAddress = connection.getInetAddress

  /** How much a client may send at once. Thrift would make room for 100 MB before it has seen a password. */
  override def getConfiguration: TConfiguration = Visitor.Messages

  def hasLeft: Boolean = connection.isClosed

  /** At once, whoever reads or writes: TLS would say goodbye first, and wait until that is taken. */
  override def close(): Unit = {
    Try(connection.close())
    Visitor.forget(this).foreach(session => Try(service.closeSession(session)))
  }
}

object Visitor {
  private val Messages =
    new TConfiguration(1 << 20, TConfiguration.DEFAULT_MAX_FRAME_SIZE, TConfiguration.DEFAULT_RECURSION_DEPTH)
  private val Strangers = 64
  private val Patience = TimeUnit.SECONDS.toNanos(10)
  private val Idle = TimeUnit.HOURS.toMillis(8).toInt

  /** Of a user: sessions, and connections without any. */
  private lazy val Limit = sys.props("lakehouse.sessions").toInt

  private val clock = Executors.newSingleThreadScheduledExecutor { (task: Runnable) =>
    val thread = new Thread(task, "strangers")
    thread.setDaemon(true)
    thread
  }
  private val answered = new ThreadLocal[Visitor]

  /** With when they came. */
  private val strangers = mutable.LinkedHashMap.empty[Visitor, Long]

  /** With their names. */
  private val guests = mutable.LinkedHashMap.empty[Visitor, String]
  private val sessions = mutable.Map.empty[SessionHandle, Visitor]

  clock.scheduleWithFixedDelay(() => late.foreach(_.close()), 1, 1, TimeUnit.SECONDS)

  private def late: Seq[Visitor] = synchronized {
    strangers.takeWhile { case (_, since) => System.nanoTime - since > Patience }.keys.toSeq
  }

  /** Whose requests this thread answers. */
  def current: Visitor = answered.get

  def answer(visitor: Visitor): Unit = answered.set(visitor)

  /** There is always room: if too many wait, the first leaves of the address that has most of them. */
  def enter(visitor: Visitor): Unit = {
    val one = synchronized {
      strangers(visitor) = System.nanoTime
      if (strangers.size > Strangers) Some(strangers.keys.groupBy(_.address).values.maxBy(_.size).head) else None
    }
    one.foreach(_.close())
  }

  /** The user has logged in. Of connections without a session, the first leaves if there are too many. */
  def welcome(user: String): Unit = {
    val one = synchronized {
      if (strangers.remove(current).isDefined) guests(current) = user
      val without = guests.keys.filter(guest => guests(guest) == user && !sessions.values.exists(_ eq guest))
      if (without.size > Limit) without.headOption else None
    }
    one.foreach(_.close())
    current.setSocketTimeout(Idle)
  }

  /** What is against one more session of who is answered. */
  def refusal: Option[String] = synchronized {
    val user = guests.getOrElse(current, "")
    val open = sessions.values.count(guests.get(_).contains(user))
    if (open >= Limit) Some(s"$user has $open sessions open, and may have no more (serve.sessions_per_user)") else None
  }

  def opened(session: SessionHandle): Unit = {
    synchronized(sessions(session) = current)
    if (current.hasLeft) current.close() // or nobody would close the session of one who left meanwhile
  }

  def closed(session: SessionHandle): Unit = synchronized(sessions -= session)

  /** Returns its sessions: of several, Hive itself would close the last one only. */
  private def forget(visitor: Visitor): Iterable[SessionHandle] = synchronized {
    strangers -= visitor
    guests -= visitor
    val left = sessions.filter(_._2 eq visitor).keys.toSeq
    sessions --= left
    left
  }
}

/** Where visitors come in; if there are keys, by TLS. */
class Entrance(listening: ServerSocket, tls: Option[SSLSocketFactory], service: CLIService)
    extends TServerSocket(listening) {
  override def accept(): TSocket =
    try {
      val connection = listening.accept()
      val visitor = new Visitor(connection, tls.fold(connection)(encrypted(connection, _)), service)
      Visitor.enter(visitor)
      visitor
    } catch {
      case error: IOException => throw new TTransportException(error)
    }

  private def encrypted(connection: Socket, tls: SSLSocketFactory): Socket = {
    val socket = tls.createSocket(connection, null, true).asInstanceOf[SSLSocket]
    socket.setUseClientMode(false)
    socket
  }
}

object Entrance {
  private val Waiting = 128

  def open(host: String, port: Int, tls: Option[SSLSocketFactory], service: CLIService): Entrance = {
    val listening = new ServerSocket()
    listening.setReuseAddress(true)
    listening.bind(new InetSocketAddress(host, port), Waiting)
    new Entrance(listening, tls, service)
  }

  /** By a certificate and its key, as PKCS #12. */
  def encryption(keys: Array[Byte], password: String): SSLSocketFactory = {
    val store = KeyStore.getInstance("PKCS12")
    store.load(new ByteArrayInputStream(keys), password.toCharArray)
    val managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm)
    managers.init(store, password.toCharArray)
    val context = SSLContext.getInstance("TLS")
    context.init(managers.getKeyManagers, null, null)
    context.getSocketFactory
  }
}

/** The server's side of the protocol, by which clients come in. What they may set, and how, is decided here, before Hive
  * looks at it: it would put properties into the JVM, and secrets of the environment into values.
  */
class Door(service: CLIService, tls: Option[SSLSocketFactory]) extends ThriftBinaryCLIService(service) {
  import Door._

  /** As Hive does it, but for the entrance: that limits how many come in, and so the threads. */
  override protected def initializeServer(): Unit = {
    val authentication = new HiveAuthFactory(hiveConf)
    val passwords = authentication.getAuthTransFactory
    val threads = new ThreadPoolExecutor(
      0, Int.MaxValue, 60, TimeUnit.SECONDS, new SynchronousQueue[Runnable], new ThreadFactoryWithGarbageCleanup("door"))
    server = new TThreadPoolServer(
      new TThreadPoolServer.Args(Entrance.open(hiveHost, portNum, tls, service))
        .processorFactory(authentication.getAuthProcFactory(this))
        .transportFactory(new TTransportFactory {
          override def getTransport(base: TTransport): TTransport = {
            Visitor.answer(base.asInstanceOf[Visitor])
            passwords.getTransport(base)
          }
        })
        .protocolFactory(new TBinaryProtocol.Factory)
        .executorService(threads))
    server.setServerEventHandler(serverEventHandler)
  }

  override def OpenSession(request: TOpenSessionReq): TOpenSessionResp =
    refused(request.getConfiguration, MayBeSent).orElse(Visitor.refusal.map(status)) match {
      case Some(status) => new TOpenSessionResp(status, request.getClient_protocol)
      case None =>
        val response = super.OpenSession(request)
        if (response.isSetSessionHandle) Visitor.opened(new SessionHandle(response.getSessionHandle))
        response
    }

  override def CloseSession(request: TCloseSessionReq): TCloseSessionResp = {
    Visitor.closed(new SessionHandle(request.getSessionHandle))
    super.CloseSession(request)
  }

  /** By the threads of which there are as many as queries may run, also for a client that wants no answer before the end. */
  override def ExecuteStatement(request: TExecuteStatementReq): TExecuteStatementResp =
    refused(request.getConfOverlay, Set.empty) match {
      case Some(status) => new TExecuteStatementResp(status)
      case None =>
        val waits = !request.isRunAsync
        request.setRunAsync(true)
        val response = super.ExecuteStatement(request)
        if (waits && response.isSetOperationHandle)
          failure(new OperationHandle(response.getOperationHandle)).foreach(response.setStatus)
        response
    }

  private def failure(query: OperationHandle): Option[TStatus] = {
    val end = Iterator.continually(service.getOperationStatus(query)).find(_.getState.isTerminal).get
    end.getState match {
      case OperationState.FINISHED => None
      case OperationState.TIMEDOUT => Some(status(TookTooLong))
      case state => Some(status(Option(end.getOperationException).fold(state.toString)(error => told(error.getMessage))))
    }
  }

  /** Clients wait on for a query that was ended, as they don't know its state. */
  override def GetOperationStatus(request: TGetOperationStatusReq): TGetOperationStatusResp = {
    val response = super.GetOperationStatus(request)
    Option(response.getErrorMessage).foreach(message => response.setErrorMessage(told(message)))
    if (response.getOperationState == TOperationState.TIMEDOUT_STATE) {
      response.setOperationState(TOperationState.ERROR_STATE)
      response.setErrorMessage(TookTooLong)
    }
    response
  }

  // These two would start a metastore of Hive's.
  override def GetPrimaryKeys(request: TGetPrimaryKeysReq) = new TGetPrimaryKeysResp(status(Refused("GetPrimaryKeys").getMessage))
  override def GetCrossReference(request: TGetCrossReferenceReq) =
    new TGetCrossReferenceResp(status(Refused("GetCrossReference").getMessage))
}

object Door {
  /** The first two are sent by each JDBC client. */
  private val MayBeSent = Set(
    "use:database",
    "set:hiveconf:hive.server2.thrift.resultset.default.fetch.size",
    "set:hiveconf:spark.sql.session.timeZone")

  private def refused(settings: java.util.Map[String, String], known: Set[String]): Option[TStatus] =
    Option(settings).iterator.flatMap(_.asScala).collectFirst {
      case (name, value) if !known(name) || value == null || value.contains("${") =>
        status(Refused(s"setting $name").getMessage)
    }

  private val TookTooLong = "the query took longer than it may, and was ended (serve.query_timeout)"

  /** Without the places in Java's code where an error came from. */
  private def told(message: String): String = message.split("\n\tat ").head

  private def status(message: String): TStatus = HiveSQLException.toTStatus(new HiveSQLException(message))
}

/** The tables that all sessions see, kept in the memory of this Spark. Without SQL, which only reads here. */
object Tables {
  def createSchema(session: SparkSession, name: String, location: String): Unit =
    catalog(session).createDatabase(CatalogDatabase(name, "", new URI(location), Map.empty), ignoreIfExists = true)

  /** `columns` are Spark's JSON; Delta has its own, and clients that list columns are told these. */
  def register(session: SparkSession, schema: String, name: String, path: String, columns: String): Unit = {
    val storage = CatalogStorageFormat.empty.copy(locationUri = Some(CatalogUtils.stringToURI(path)))
    val identifier = TableIdentifier(name, Some(schema))
    val columnTypes = DataType.fromJson(columns).asInstanceOf[StructType]
    catalog(session).createTable(
      CatalogTable(identifier, CatalogTableType.EXTERNAL, storage, columnTypes, provider = Some("delta")),
      ignoreIfExists = false)
  }

  def forget(session: SparkSession, schema: String, name: String): Unit =
    catalog(session).dropTable(schema, name, ignoreIfNotExists = true, purge = false)

  private def catalog(session: SparkSession): ExternalCatalog = session.sharedState.externalCatalog
}

/** Makes each session one that only reads the tables of its schemas. What it does not know, it refuses. */
class ReadOnly extends (SparkSessionExtensions => Unit) {
  import ReadOnly._

  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectParser((session, parser) => new ReadOnlyParser(session, parser))
    // However a statement writes their names, this is what it finds.
    for (name <- CallJava ++ ReadFiles)
      extensions.injectFunction((
        FunctionIdentifier(name),
        new ExpressionInfo(getClass.getName, name),
        _ => throw Refused(s"the function $name")))
  }
}

object ReadOnly {
  private val CallJava = Seq("reflect", "try_reflect", "java_method")

  /** By their options, or by what a document says of itself. */
  private val ReadFiles = Seq(
    "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "to_xml", "schema_of_xml",
    "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number", "xpath_short",
    "xpath_string")
}

case class Refused(what: String) extends RuntimeException(s"$what is not allowed: this endpoint only reads tables")

/** Parses as Spark does, and refuses what is more than a query of tables, or a question about them. */
class ReadOnlyParser(session: SparkSession, parser: ParserInterface) extends ParserInterface {
  import ReadOnlyParser._

  override def parsePlan(sql: String) = checked(sql, parser.parsePlan(sql))
  override def parsePlanWithParameters(sql: String, values: ParameterContext) =
    checked(sql, parser.parsePlanWithParameters(sql, values))
  override def parseQuery(sql: String) = checked(sql, parser.parseQuery(sql))

  override def parseExpression(sql: String) = parser.parseExpression(sql)
  override def parseTableIdentifier(sql: String) = parser.parseTableIdentifier(sql)
  override def parseFunctionIdentifier(sql: String) = parser.parseFunctionIdentifier(sql)
  override def parseMultipartIdentifier(sql: String) = parser.parseMultipartIdentifier(sql)
  override def parseTableSchema(sql: String) = parser.parseTableSchema(sql)
  override def parseDataType(sql: String) = parser.parseDataType(sql)
  override def parseRoutineParam(sql: String) = parser.parseRoutineParam(sql)

  private def checked(sql: String, parse: => LogicalPlan): LogicalPlan = {
    if (sql.contains("${")) throw Refused("${...}") // Spark would put in a variable, be it a secret of the environment
    val plan = parse
    parts(plan).foreach {
      case relation: UnresolvedRelation =>
        if (!relation.options.isEmpty) throw Refused("WITH (...)")
        checkName(relation.multipartIdentifier)
      case table: UnresolvedTable => checkName(table.multipartIdentifier)
      case table: UnresolvedTableOrView => checkName(table.multipartIdentifier)
      case schema: UnresolvedNamespace => checkSchema(schema.multipartIdentifier)
      case call: UnresolvedTableValuedFunction =>
        val name = call.name.mkString(".")
        if (!TableFunctions(name.toLowerCase(Locale.ROOT))) throw Refused(s"the table function $name")
      case node: LogicalPlan =>
        val name = node.getClass.getSimpleName.stripSuffix("$")
        if (!Queries(name) && !Questions(name)) throw Refused(name)
      case _ =>
    }
    plan
  }

  /** A table stands by itself or after its schema; csv.`/etc/passwd` would be a file. */
  private def checkName(name: Seq[String]): Unit = if (name.size > 1) checkSchema(name.init)

  private def checkSchema(name: Seq[String]): Unit = name match {
    case Seq(schema) if session.sessionState.catalog.databaseExists(schema) =>
    case Seq("spark_catalog", schema) if session.sessionState.catalog.databaseExists(schema) =>
    case Seq() => // the current one
    case _ => throw Refused(name.mkString("."))
  }
}

object ReadOnlyParser {
  private val Queries = Set(
    "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
    "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "PipeOperator", "Pivot", "Project", "RelationTimeTravel",
    "Sample", "Sort", "SubqueryAlias", "Union", "Unpivot", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable",
    "UnresolvedQualify", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedWith",
    "WithWindowDefinition")

  private val Questions = Set(
    "CurrentNamespace", "DescribeColumn", "DescribeDeltaDetailCommand", "DescribeDeltaHistory", "DescribeFunction",
    "DescribeNamespace", "DescribeQueryCommand", "DescribeRelation", "ExplainCommand", "SetCatalogAndNamespace",
    "SetNamespaceCommand", "ShowCatalogsCommand", "ShowColumns", "ShowCurrentNamespaceCommand",
    "ShowFunctions", "ShowNamespacesCommand", "ShowPartitions", "ShowTableProperties", "ShowTables",
    "ShowTablesExtended", "ShowViews", "UnresolvedFunctionName")

  private val TableFunctions = Set(
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range",
    "stack")

  /** A tree of whatever kind, with all that is in it, however deep. */
  private def parts(node: Any): Iterator[Any] = Iterator(node) ++ (node match {
    case items: Iterable[_] => items.iterator.flatMap(parts)
    case product: Product => product.productIterator.flatMap(parts)
    case _ => Iterator.empty
  })
}
}

/** What Spark keeps to its own packages. */
package org.apache.spark.sql.hive.thriftserver {

  import java.io.{FilterOutputStream, InputStream, OutputStream}
  import javax.net.ssl.SSLSocketFactory

  import org.apache.hive.service.Service
  import org.apache.hive.service.cli.CLIService
  import org.apache.spark.{SparkConf, SparkContext}
  import org.apache.spark.io.CompressionCodec
  import org.apache.spark.sql.SparkSession
  import org.apache.spark.sql.hive.HiveUtils
  import org.apache.spark.util.io.ChunkedByteBufferOutputStream

  object ReadOnlyServer {
    /** As `HiveThriftServer2.startWithSparkSession` does, but for the door, which is another before any is open. */
    def start(session: SparkSession, tls: Option[SSLSocketFactory]): Unit = {
      val context = session.sparkContext
      val conf = HiveUtils.newClientForExecution(context.conf, session.sessionState.newHadoopConf()).conf
      val server = new HiveThriftServer2(session)
      server.init(conf)
      val services = ReflectionUtils.getAncestorField[java.util.List[Service]](server, 2, "serviceList")
      val door = new lakehouse.Door(services.get(0).asInstanceOf[CLIService], tls)
      door.init(conf)
      services.set(1, door)
      ReflectionUtils.setSuperField(server, "thriftCLIService", door)
      ReflectionUtils.invoke(
        HiveThriftServer2.getClass, HiveThriftServer2, "createListenerAndUI",
        classOf[HiveThriftServer2] -> server, classOf[SparkContext] -> context)
      HiveThriftServer2.systemExitOnError.set(false)
      server.start()
    }
  }
  /** Nothing is compressed, so that Spark's limit of a result holds for its rows; and no task makes more than that. */
  class Uncompressed(conf: SparkConf) extends CompressionCodec {
    private val limit = conf.getSizeAsBytes("spark.driver.maxResultSize")

    override def compressedOutputStream(stream: OutputStream): OutputStream = stream match {
      case memory: ChunkedByteBufferOutputStream => new Limited(memory, limit)
      case other => other
    }

    override def compressedInputStream(stream: InputStream): InputStream = stream
  }

  class Limited(memory: OutputStream, limit: Long) extends FilterOutputStream(memory) {
    private var written = 0L

    override def write(byte: Int): Unit = {
      count(1)
      memory.write(byte)
    }

    override def write(bytes: Array[Byte], offset: Int, length: Int): Unit = {
      count(length)
      memory.write(bytes, offset, length)
    }

    private def count(more: Int): Unit = {
      written += more
      if (written > limit) throw new RuntimeException(s"the result has more than $limit bytes (serve.max_result)")
    }
  }
}
