/** What the SQL endpoint adds to Spark: a check of passwords, and the refusal of all but reading. */
package lakehouse {

import java.net.URI
import java.security.MessageDigest
import java.util.{Base64, Locale}
import javax.crypto.SecretKeyFactory
import javax.crypto.spec.PBEKeySpec
import javax.security.sasl.AuthenticationException

import scala.jdk.CollectionConverters._

import org.apache.hive.service.auth.PasswdAuthenticationProvider
import org.apache.hive.service.cli.{CLIService, HiveSQLException}
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService
import org.apache.hive.service.rpc.thrift._
import org.apache.spark.sql.{SparkSession, SparkSessionExtensions}
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.catalog._
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.types.{DataType, StructType}

/** The Thrift server's check of a user. The property `lakehouse.users` has a line for each: name, salt, hash of the password. */
class Passwords extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit =
    if (!Passwords.accepts(user, password)) throw new AuthenticationException("unknown user or wrong password")
}

object Passwords {
  private val Iterations = 200000

  private lazy val users: Map[String, (Array[Byte], Array[Byte])] =
    sys.props("lakehouse.users").linesIterator.map { line =>
      val Array(name, salt, hash) = line.split(' ')
      (name, (Base64.getDecoder.decode(salt), Base64.getDecoder.decode(hash)))
    }.toMap

  /** As slow for a user who is not known, so that names can't be told by the time it takes. */
  private def accepts(user: String, password: String): Boolean = {
    val (salt, hash) = users.getOrElse(user, nobody)
    MessageDigest.isEqual(hash, hashed(password, salt)) && users.contains(user)
  }

  private val nobody = (new Array[Byte](16), new Array[Byte](32))

  private def hashed(password: String, salt: Array[Byte]): Array[Byte] = {
    val spec = new PBEKeySpec(password.toCharArray, salt, Iterations, 256)
    SecretKeyFactory.getInstance("PBKDF2WithHmacSHA256").generateSecret(spec).getEncoded
  }
}

/** The server's side of the protocol, by which clients come in. What they may set, and how, is decided here, before Hive
  * looks at it: it would put properties into the JVM, and secrets of the environment into values.
  */
class Door(service: CLIService) extends ThriftBinaryCLIService(service) {
  import Door._

  override def OpenSession(request: TOpenSessionReq): TOpenSessionResp =
    refused(request.getConfiguration, MayBeSent) match {
      case Some(status) => new TOpenSessionResp(status, request.getClient_protocol)
      case None => super.OpenSession(request)
    }

  override def ExecuteStatement(request: TExecuteStatementReq): TExecuteStatementResp =
    refused(request.getConfOverlay, Set.empty) match {
      case Some(status) => new TExecuteStatementResp(status)
      case None => super.ExecuteStatement(request)
    }

  /** Without the places in Java's code where an error came from. */
  override def GetOperationStatus(request: TGetOperationStatusReq): TGetOperationStatusResp = {
    val response = super.GetOperationStatus(request)
    Option(response.getErrorMessage).foreach(message => response.setErrorMessage(message.split("\n\tat ").head))
    response
  }

  // These two would start a metastore of Hive's.
  override def GetPrimaryKeys(request: TGetPrimaryKeysReq) = new TGetPrimaryKeysResp(status(Refused("GetPrimaryKeys")))
  override def GetCrossReference(request: TGetCrossReferenceReq) =
    new TGetCrossReferenceResp(status(Refused("GetCrossReference")))
}

object Door {
  /** The first two are sent by each JDBC client. */
  private val MayBeSent = Set(
    "use:database",
    "set:hiveconf:hive.server2.thrift.resultset.default.fetch.size",
    "set:hiveconf:spark.sql.session.timeZone")

  private def refused(settings: java.util.Map[String, String], known: Set[String]): Option[TStatus] =
    Option(settings).iterator.flatMap(_.asScala).collectFirst {
      case (name, value) if !known(name) || value == null || value.contains("${") => status(Refused(s"setting $name"))
    }

  private def status(refused: Refused): TStatus = HiveSQLException.toTStatus(new HiveSQLException(refused.getMessage))
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

  import org.apache.hive.service.Service
  import org.apache.hive.service.cli.CLIService
  import org.apache.spark.SparkContext
  import org.apache.spark.sql.SparkSession
  import org.apache.spark.sql.hive.HiveUtils

  object ReadOnlyServer {
    /** As `HiveThriftServer2.startWithSparkSession` does, but for the door, which is another before any is open. */
    def start(session: SparkSession): Unit = {
      val context = session.sparkContext
      val conf = HiveUtils.newClientForExecution(context.conf, session.sessionState.newHadoopConf()).conf
      val server = new HiveThriftServer2(session)
      server.init(conf)
      val services = ReflectionUtils.getAncestorField[java.util.List[Service]](server, 2, "serviceList")
      val door = new lakehouse.Door(services.get(0).asInstanceOf[CLIService])
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
}
