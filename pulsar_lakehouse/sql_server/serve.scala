/** What the SQL endpoint adds to Spark's Thrift server: passwords, limits per client, and read-only SQL. */
package lakehouse {

import java.io.{ByteArrayInputStream, IOException}
import java.net.{InetAddress, InetSocketAddress, ServerSocket, Socket, URI}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths, StandardOpenOption}
import java.security.{KeyStore, MessageDigest}
import java.time.Instant
import java.time.temporal.ChronoUnit
import java.util.{Base64, Locale}
import java.util.concurrent.{Executors, SynchronousQueue, ThreadPoolExecutor, TimeUnit}
import javax.crypto.SecretKeyFactory
import javax.crypto.spec.PBEKeySpec
import javax.net.ssl.{KeyManagerFactory, SSLContext, SSLSocket, SSLSocketFactory}
import javax.security.sasl.AuthenticationException

import com.fasterxml.jackson.databind.ObjectMapper
import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

import org.apache.hive.service.auth.{HiveAuthFactory, PasswdAuthenticationProvider}
import org.apache.hive.service.cli.{CLIService, HiveSQLException, OperationHandle, OperationState, SessionHandle}
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService
import org.apache.hive.service.rpc.thrift._
import org.apache.hive.service.server.ThreadFactoryWithGarbageCleanup
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog._
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.{AnalysisHelper, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution.datasources.LogicalRelation
import org.apache.spark.sql.hive.thriftserver.ReadOnlyServer
import org.apache.spark.sql.types.{DataType, StringType, StructType}
import org.apache.thrift.TConfiguration
import org.apache.thrift.protocol.TBinaryProtocol
import org.apache.thrift.server.TThreadPoolServer
import org.apache.thrift.transport._

/** Checks passwords for the Thrift server. The property `lakehouse.users` has a line per user: name, salt, hash. */
class Passwords extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit =
    if (Passwords.accepts(user, password, Visitor.current)) Visitor.welcome(user)
    else throw new AuthenticationException("unknown user or wrong password")
}

object Passwords {
  private val Iterations = 200000
  private val Tries = 5
  private val Forgotten = TimeUnit.MINUTES.toNanos(1)

  /** The times of failed logins, by address and the hash of the user name. */
  private val failures = mutable.Map.empty[(InetAddress, Int), Seq[Long]]

  private lazy val users: Map[String, (Array[Byte], Array[Byte])] =
    sys.props("lakehouse.users").linesIterator.map { line =>
      val Array(name, salt, hash) = line.split(' ')
      (name, (Base64.getDecoder.decode(salt), Base64.getDecoder.decode(hash)))
    }.toMap

  /** Checks one password at a time, so that guessing uses at most one core. After too many failures for a user name, an
    * address must wait.
    */
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

  /** Takes as long for an unknown user, so that the time does not reveal which names exist. */
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

/** A connection. It is a stranger until a user has logged in, and may be closed at any time until then. */
class Visitor(connection: Socket, socket: Socket, service: CLIService) extends TSocket(socket) {
  val address: InetAddress = connection.getInetAddress

  /** Limits the size of a message. By default, Thrift would allocate 100 MB before it has checked a password. */
  override def getConfiguration: TConfiguration = Visitor.Messages

  def hasLeft: Boolean = connection.isClosed

  /** Closes at once, even during a read or write. TLS would first send a closing message and wait for its delivery. */
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

  /** The most sessions that a user may have open, and the most connections without a session. */
  private lazy val Limit = sys.props("lakehouse.sessions").toInt

  private val clock = Executors.newSingleThreadScheduledExecutor { (task: Runnable) =>
    val thread = new Thread(task, "strangers")
    thread.setDaemon(true)
    thread
  }
  private val answered = new ThreadLocal[Visitor]

  /** Connections without a login, with the time when they were accepted. */
  private val strangers = mutable.LinkedHashMap.empty[Visitor, Long]

  /** Connections that have logged in, with the name of the user. */
  private val guests = mutable.LinkedHashMap.empty[Visitor, String]
  private val sessions = mutable.Map.empty[SessionHandle, Visitor]

  clock.scheduleWithFixedDelay(() => late.foreach(_.close()), 1, 1, TimeUnit.SECONDS)

  private def late: Seq[Visitor] = synchronized {
    strangers.takeWhile { case (_, since) => System.nanoTime - since > Patience }.keys.toSeq
  }

  /** The connection whose requests this thread answers. */
  def current: Visitor = answered.get

  def answer(visitor: Visitor): Unit = answered.set(visitor)

  /** Accepts a connection. If there are too many strangers, the oldest one of the address that has most is closed. */
  def enter(visitor: Visitor): Unit = {
    val one = synchronized {
      strangers(visitor) = System.nanoTime
      if (strangers.size > Strangers) Some(strangers.keys.groupBy(_.address).values.maxBy(_.size).head) else None
    }
    one.foreach(_.close())
  }

  /** Records a login. If the user has too many connections without a session, the oldest one is closed. */
  def welcome(user: String): Unit = {
    val one = synchronized {
      if (strangers.remove(current).isDefined) guests(current) = user
      val without = guests.keys.filter(guest => guests(guest) == user && !sessions.values.exists(_ eq guest))
      if (without.size > Limit) without.headOption else None
    }
    one.foreach(_.close())
    current.setSocketTimeout(Idle)
  }

  /** The user who has logged in on the connection whose requests this thread answers. */
  def user: String = synchronized(guests.getOrElse(current, ""))

  /** Why the current user may not open another session; None if they may. */
  def refusal: Option[String] = synchronized {
    val user = guests.getOrElse(current, "")
    val open = sessions.values.count(guests.get(_).contains(user))
    if (open >= Limit) Some(s"$user has $open sessions open, which is the limit (serve.sessions_per_user)") else None
  }

  def opened(session: SessionHandle): Unit = {
    synchronized(sessions(session) = current)
    if (current.hasLeft) current.close() // otherwise nothing would close this session
  }

  def closed(session: SessionHandle): Unit = synchronized(sessions -= session)

  /** Removes a connection and returns its sessions, for the caller to close: Hive would only close the last one. */
  private def forget(visitor: Visitor): Iterable[SessionHandle] = synchronized {
    strangers -= visitor
    guests -= visitor
    val left = sessions.filter(_._2 eq visitor).keys.toSeq
    sessions --= left
    left
  }
}

/** Accepts connections, with TLS if there is a certificate. */
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

  /** TLS with a certificate and its key, given as PKCS #12. */
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

/** The server side of the protocol. It checks the settings that clients send before Hive sees them: Hive would set JVM
  * properties from them, and replace variables in their values, which could reveal secrets of the environment.
  */
class Door(service: CLIService, tls: Option[SSLSocketFactory]) extends ThriftBinaryCLIService(service) {
  import Door._

  /** Like Hive's method, but with `Entrance`, which limits the number of connections, and so of threads. */
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
        if (response.isSetSessionHandle) admit(response) else response
    }

  /** Gives a new session the catalog of its user. */
  private def admit(response: TOpenSessionResp): TOpenSessionResp = {
    val session = new SessionHandle(response.getSessionHandle)
    Visitor.opened(session)
    try {
      ReadOnlyServer.move(service, session, Guests.catalogOf(Visitor.user))
      response
    } catch {
      case NonFatal(error) =>
        Visitor.closed(session)
        Try(service.closeSession(session))
        new TOpenSessionResp(status(told(error.getMessage)), response.getServerProtocolVersion)
    }
  }

  override def CloseSession(request: TCloseSessionReq): TCloseSessionResp = {
    Visitor.closed(new SessionHandle(request.getSessionHandle))
    super.CloseSession(request)
  }

  /** Runs the query in the pool that limits concurrent queries, even if the client asks for a synchronous call. */
  override def ExecuteStatement(request: TExecuteStatementReq): TExecuteStatementResp =
    refused(request.getConfOverlay, Set.empty).orElse(unnoted(request.getStatement)) match {
      case Some(status) => new TExecuteStatementResp(status)
      case None =>
        val waits = !request.isRunAsync
        request.setRunAsync(true)
        val response = super.ExecuteStatement(request)
        if (waits && response.isSetOperationHandle)
          failure(new OperationHandle(response.getOperationHandle)).foreach(response.setStatus)
        response
    }

  private def unnoted(statement: String): Option[TStatus] =
    Try(Audit.note(Visitor.user, statement)).failed.toOption.map(_ => status("the log of statements can't be written"))

  private def failure(query: OperationHandle): Option[TStatus] = {
    val end = Iterator.continually(service.getOperationStatus(query)).find(_.getState.isTerminal).get
    end.getState match {
      case OperationState.FINISHED => None
      case OperationState.TIMEDOUT => Some(status(TookTooLong))
      case state => Some(status(Option(end.getOperationException).fold(state.toString)(error => told(error.getMessage))))
    }
  }

  /** Reports a timeout as an error: clients don't know its state, and would continue to wait. */
  override def GetOperationStatus(request: TGetOperationStatusReq): TGetOperationStatusResp = {
    val response = super.GetOperationStatus(request)
    Option(response.getErrorMessage).foreach(message => response.setErrorMessage(told(message)))
    if (response.getOperationState == TOperationState.TIMEDOUT_STATE) {
      response.setOperationState(TOperationState.ERROR_STATE)
      response.setErrorMessage(TookTooLong)
    }
    response
  }

  // These two would start Hive's metastore.
  override def GetPrimaryKeys(request: TGetPrimaryKeysReq) = new TGetPrimaryKeysResp(status(Refused("GetPrimaryKeys").getMessage))
  override def GetCrossReference(request: TGetCrossReferenceReq) =
    new TGetCrossReferenceResp(status(Refused("GetCrossReference").getMessage))
}

object Door {
  /** Settings that a client may send. Every JDBC client sends the first two. */
  private val MayBeSent = Set(
    "use:database",
    "set:hiveconf:hive.server2.thrift.resultset.default.fetch.size",
    "set:hiveconf:spark.sql.session.timeZone")

  private def refused(settings: java.util.Map[String, String], known: Set[String]): Option[TStatus] =
    Option(settings).iterator.flatMap(_.asScala).collectFirst {
      case (name, value) if !known(name) || value == null || value.contains("${") =>
        status(Refused(s"setting $name").getMessage)
    }

  private val TookTooLong = "the query exceeded the time limit and was cancelled (serve.query_timeout)"

  /** A message without its Java stack trace. */
  private def told(message: String): String = message.split("\n\tat ").head

  private def status(message: String): TStatus = HiveSQLException.toTStatus(new HiveSQLException(message))
}

/** The catalog of each user, as a session that has it: what the user may not read does not exist in there. */
object Guests {
  private val catalogs = mutable.Map.empty[String, SparkSession]
  private val unmasked = mutable.Set.empty[String]

  /** `sees` says whether personal data is not masked for the user. */
  def admit(user: String, catalog: SparkSession, sees: Boolean): Unit = synchronized {
    catalogs(user) = catalog
    if (sees) unmasked += user
  }

  def catalogOf(user: String): SparkSession = synchronized(catalogs(user))

  def sees(user: String): Boolean = synchronized(unmasked(user))
}

/** The log of who ran which statement, which Python's `audit` describes. */
object Audit {
  private lazy val file = Paths.get(sys.props("lakehouse.audit"))
  private val json = new ObjectMapper()

  /** Adds a line, before the statement is run. If that fails, so does the statement. */
  def note(user: String, statement: String): Unit = synchronized {
    val line = json.createObjectNode()
    line.put("at", Instant.now().truncatedTo(ChronoUnit.MILLIS).toString)
    line.put("who", user).put("did", statement).put("unmasked", Guests.sees(user))
    Files.write(file, s"$line\n".getBytes(UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND)
  }
}

/** Registers tables in Spark's in-memory catalogs. SQL can't do that, because it is read-only here. */
object Tables {
  /** A session with a catalog of its own, which is empty. */
  def apart(session: SparkSession): SparkSession = ReadOnlyServer.apart(session)

  def createSchema(session: SparkSession, name: String, location: String): Unit =
    catalog(session).createDatabase(CatalogDatabase(name, "", new URI(location), Map.empty), ignoreIfExists = true)

  /** `columns` is Spark's JSON of the schema. Clients that list columns get this one; Delta has its own. `masked` are
    * the columns, and fields of structs such as `user.email`, with a comma between; `*` are all columns.
    */
  def register(
      session: SparkSession, schema: String, name: String, path: String, columns: String, masked: String): Unit = {
    val storage = CatalogStorageFormat.empty.copy(locationUri = Some(CatalogUtils.stringToURI(path)))
    val identifier = TableIdentifier(name, Some(schema))
    val columnTypes = DataType.fromJson(columns).asInstanceOf[StructType]
    catalog(session).createTable(
      CatalogTable(
        identifier, CatalogTableType.EXTERNAL, storage, columnTypes, provider = Some("delta"),
        properties = Map(Masking.Property -> masked)),
      ignoreIfExists = false)
  }

  def forget(session: SparkSession, schema: String, name: String): Unit =
    catalog(session).dropTable(schema, name, ignoreIfNotExists = true, purge = false)

  private def catalog(session: SparkSession): ExternalCatalog = session.sharedState.externalCatalog
}

/** Makes each session read-only, and limits it to the tables of its schemas. Unknown statements are refused. */
class ReadOnly extends (SparkSessionExtensions => Unit) {
  import ReadOnly._

  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectParser((session, parser) => new ReadOnlyParser(session, parser))
    extensions.injectPostHocResolutionRule(_ => Masking)
    // These replace the functions, however a statement spells their names.
    for (name <- CallJava ++ ReadFiles)
      extensions.injectFunction((
        FunctionIdentifier(name),
        new ExpressionInfo(getClass.getName, name),
        _ => throw Refused(s"the function $name")))
  }
}

object ReadOnly {
  private val CallJava = Seq("reflect", "try_reflect", "java_method")

  /** Functions whose options, or whose documents, can name files. */
  private val ReadFiles = Seq(
    "from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "to_xml", "schema_of_xml",
    "xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number", "xpath_short",
    "xpath_string")
}

/** Masks the columns that the catalog's table says: in each scan of it, before anything else sees the rows. */
object Masking extends Rule[LogicalPlan] {
  val Property = "lakehouse.masked"
  private val Mask = "***"
  private val Done = TreeNodeTag[Unit]("lakehouse.masked")

  override def apply(plan: LogicalPlan): LogicalPlan = AnalysisHelper.allowInvokingTransformsInAnalyzer {
    plan.transformUpWithSubqueries {
      case relation: LogicalRelation if relation.getTagValue(Done).isEmpty =>
        val paths = relation.catalogTable.toSeq.flatMap(masked)
        if (paths.isEmpty) relation else hide(relation, paths)
    }
  }

  private def masked(table: CatalogTable): Seq[Seq[String]] =
    table.properties.get(Property).toSeq.flatMap(_.split(',')).filter(_.nonEmpty).map(_.split('.').toSeq)

  /** The columns have new ids below the mask, so that all that is above it can only mean the masked ones. */
  private def hide(relation: LogicalRelation, paths: Seq[Seq[String]]): LogicalPlan = {
    val inner = relation.newInstance()
    inner.setTagValue(Done, ())
    Project(
      relation.output.zip(inner.output).map { case (outer, column) =>
        Alias(hidden(column, within(paths, column.name)), outer.name)(
          outer.exprId, outer.qualifier, Some(outer.metadata))
      },
      inner)
  }

  /** The rest of the paths that begin with a name. */
  private def within(paths: Seq[Seq[String]], name: String): Seq[Seq[String]] =
    paths.filter(path => path.head == "*" || path.head.equalsIgnoreCase(name)).map(_.tail)

  private def hidden(value: Expression, paths: Seq[Seq[String]]): Expression = (value.dataType, paths) match {
    case (_, Nil) => value
    case (struct: StructType, paths) if paths.forall(_.nonEmpty) =>
      val fields = struct.fields.zipWithIndex.collect {
        case (field, place) if within(paths, field.name).nonEmpty =>
          WithField(field.name, hidden(GetStructField(value, place, Some(field.name)), within(paths, field.name)))
      }
      UpdateFields(value, fields.toSeq)
    case (text: StringType, _) => If(IsNull(value), Literal(null, text), Cast(Literal(Mask), text))
    case (kind, _) => Literal(null, kind)
  }
}

case class Refused(what: String) extends RuntimeException(s"$what is not allowed: this endpoint only reads tables")

/** Parses like Spark, and refuses everything but queries over tables and questions about them. */
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
    if (sql.contains("${")) throw Refused("${...}") // Spark would insert a variable, even a secret
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

  /** A table's name has at most a schema before it. In csv.`/etc/passwd`, which is a file, that is not a schema. */
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

  /** A tree of any kind, and all that is in it at any depth. */
  private def parts(node: Any): Iterator[Any] = Iterator(node) ++ (node match {
    case items: Iterable[_] => items.iterator.flatMap(parts)
    case product: Product => product.productIterator.flatMap(parts)
    case _ => Iterator.empty
  })
}
}

/** Code that uses what is private to Spark's packages. */
package org.apache.spark.sql.hive.thriftserver {

  import java.io.{FilterOutputStream, InputStream, OutputStream}
  import javax.net.ssl.SSLSocketFactory

  import org.apache.hive.service.Service
  import org.apache.hive.service.cli.{CLIService, SessionHandle}
  import org.apache.spark.{SparkConf, SparkContext}
  import org.apache.spark.io.CompressionCodec
  import org.apache.spark.sql.{classic, SparkSession}
  import org.apache.spark.sql.hive.HiveUtils
  import org.apache.spark.sql.hive.thriftserver.server.SparkSQLOperationManager
  import org.apache.spark.util.io.ChunkedByteBufferOutputStream

  object ReadOnlyServer {
    /** A session with a catalog of its own, which is empty. */
    def apart(session: SparkSession): SparkSession = {
      val settings = new java.util.HashMap[String, String]()
      session.conf.getAll.foreach { case (name, value) => settings.put(name, value) }
      new classic.SparkSession(session.sparkContext, settings)
    }

    /** Moves a session of a client, with its settings, into the catalog of another one. */
    def move(service: CLIService, handle: SessionHandle, into: SparkSession): Unit = {
      val operations = service.getSessionManager.getOperationManager.asInstanceOf[SparkSQLOperationManager]
      val before = operations.sessionToContexts.get(handle).asInstanceOf[classic.SparkSession]
      val session = into.newSession().asInstanceOf[classic.SparkSession]
      before.sessionState.conf.getAllConfs.foreach { case (name, value) =>
        session.sessionState.conf.setConfString(name, value)
      }
      session.catalog.setCurrentDatabase(before.catalog.currentDatabase)
      operations.sessionToContexts.put(handle, session)
    }

    /** Like `HiveThriftServer2.startWithSparkSession`, but puts a `Door` in place of the Thrift service. */
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
  /** Compresses nothing, so that Spark's limit for a result applies to its uncompressed rows. Also stops a task whose
    * result is larger than that.
    */
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
