/** Hadoop's local file system, without a process for each file that is created or renamed, and Delta's log on it.
  *
  * Without its native library, Hadoop runs `chmod` and `readlink`, several times for each rename. Delta and checkpoints
  * commit by renames. Java can do both itself.
  *
  * Nor does Hadoop sync local files. A commit could be on the disk before the files that it names, and a loss of power
  * would leave it without them. So what has changed is synced before a rename, and the rename itself after it.
  */
package lakehouse {

import java.io.{File, FileNotFoundException, FilterOutputStream, IOException, OutputStream}
import java.net.URI
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets
import java.nio.file.{Files, NoSuchFileException, StandardCopyOption}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.jdk.CollectionConverters._
import scala.util.Using

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.LocalConfigKeys
import org.apache.hadoop.fs.permission.FsPermission

/** Local files without checksums. */
class RawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    val file = pathToFile(path).toPath
    // Like `chmod` with a number, this keeps the setgid bit of a folder.
    val kept = if (Files.isDirectory(file)) Files.getAttribute(file, "unix:mode").asInstanceOf[Int] & SetGroup else 0
    Files.setAttribute(file, "unix:mode", Int.box(permission.toShort | kept))
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)

  /** If it fails, Hadoop's own copies the file: who reads it meanwhile, or after a crash, would see half of it. */
  override def rename(from: Path, to: Path): Boolean = {
    Unsynced.rename(pathToFile(from), pathToFile(to))
    true
  }

  override protected def createOutputStreamWithMode(
      path: Path, append: Boolean, permission: FsPermission): OutputStream = {
    val (file, made) = (pathToFile(path), super.createOutputStreamWithMode(path, append, permission))
    new FilterOutputStream(made) {
      override def write(bytes: Array[Byte], from: Int, count: Int): Unit = made.write(bytes, from, count)
      override def close(): Unit = {
        super.close()
        Unsynced.add(file, file.getParentFile)
      }
    }
  }

  override def open(path: Path, bufferSize: Int): FSDataInputStream = {
    Unsynced.syncCommitOf(pathToFile(path))
    super.open(path, bufferSize)
  }

  override def delete(path: Path, recursive: Boolean): Boolean =
    try super.delete(path, recursive)
    finally Unsynced.add(pathToFile(path).getParentFile)

  /** If it fails, Hadoop's own does not say why. */
  override protected def mkOneDirWithMode(path: Path, file: File, permission: FsPermission): Boolean =
    file.isDirectory || {
      if (!super.mkOneDirWithMode(path, file, permission) && !file.isDirectory) Files.createDirectory(file.toPath)
      Unsynced.add(file.getParentFile)
      true
    }

  private val SetGroup = 0x400
}

/** What has changed since it was synced: files that were closed, and folders in which something was made or removed. */
object Unsynced {
  private val changed = ConcurrentHashMap.newKeySet[File]

  def add(files: File*): Unit = files.foreach(changed.add)

  /** One after the other, as who sees a new name may rely on it. Without the name of a checksum, nothing is verified. */
  def rename(from: File, to: File): Unit = synchronized {
    sync()
    Files.move(from.toPath, to.toPath, StandardCopyOption.ATOMIC_MOVE)
    add(from.getParentFile, to.getParentFile)
    if (!to.getName.endsWith(".crc")) sync()
  }

  /** Before a file of a log is read: who made its commit may not have synced it yet.
    *
    * Spark has synced its files, and delta-rs syncs all of it now. Then both write the `.crc` of its version, which is
    * kept for an hour.
    */
  def syncCommitOf(file: File): Unit = file.getName match {
    case LogFile(version) =>
      val log = file.getParentFile
      val commit = new File(log, s"$version.json")
      val age = System.currentTimeMillis - commit.lastModified
      if (age < TimeUnit.HOURS.toMillis(1) && !new File(log, s"$version.crc").exists()) {
        add(log)
        val actions = Files.readString(commit.toPath, StandardCharsets.ISO_8859_1)
        if (!BySpark.matches(actions)) {
          val paths = Written.findAllMatchIn(actions).map(found => new URI(found.group(1)).getPath)
          val table = log.getParentFile
          for (file <- paths.map(new File(table, _)) ++ Iterator(commit))
            Iterator.iterate(file)(_.getParentFile).takeWhile(_ != table).foreach(add(_))
          add(table)
          sync()
        }
      }
    case _ =>
  }
  private val LogFile = """(\d{20})\.(?:json|checkpoint\.parquet)""".r
  private val BySpark = """(?s)[^\n]*"engineInfo":"Apache-Spark.*""".r
  private val Written = """(?m)^\{"(?:add|cdc)":\{"path":"([^"]*)""".r

  private def sync(): Unit = synchronized {
    for (file <- changed.asScala.toSeq) {
      changed.remove(file)
      try Using.resource(FileChannel.open(file.toPath))(_.force(true))
      catch {
        case _: NoSuchFileException => // it was a draft
        case error: IOException =>
          changed.add(file)
          throw error
      }
    }
  }
}

/** For code that asks for a `FileSystem`. As in Spark's default, which is Hive's, a rename does not replace a file. */
class LocalFiles extends LocalFileSystem(new RawFiles) {
  override def rename(from: Path, to: Path): Boolean = !pathToFile(to).isFile && super.rename(from, to)
}

/** For code that asks for a `FileContext`. */
class LocalContext(uri: URI, conf: Configuration) extends ChecksumFs(new RawContext(conf))

class RawContext(conf: Configuration)
    extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new RawFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
  override def getServerDefaults(path: Path): FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def getServerDefaults: FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def isValidName(name: String): Boolean = true
}

/** Delta's log. Delta lists the whole folder, and asks for the size of each file in it, to find the few last ones.
  *
  * A table that is written every second has a million files in its log. So a folder that has been listed once, without a
  * gap, is not listed again: the files of one version after the other are looked for.
  */
class LocalLog(conf: Configuration) extends HDFSLogStore(conf) {
  override def listFrom(path: Path, conf: Configuration): java.util.Iterator[FileStatus] = {
    val files = path.getFileSystem(conf)
    val names = LocalLog.names(new File(path.getParent.toUri.getPath), path.getName)
    names.flatMap(name => status(files, new Path(path.getParent, name))).asJava
  }

  /** Nothing if there is no such file, or none any more. */
  private def status(files: FileSystem, path: Path): Option[FileStatus] =
    try Some(files.getFileStatus(path))
    catch { case _: FileNotFoundException => None }
}

object LocalLog {
  /** The logs that had no gap when they were listed, and no other files than these of each version. */
  private val known = ConcurrentHashMap.newKeySet[File]
  private val Kinds = Seq("checkpoint.parquet", "crc", "json") // in the order of their names
  private val Version = """(\d{20})\.(.*)""".r

  /** The names from this one on that files have, or can have. */
  private def names(folder: File, first: String): Iterator[String] = first match {
    case Version(number, _) if known.contains(folder) && follows(folder, number.toLong) =>
      following(folder, number.toLong).filter(_ >= first)
    case _ => listed(folder, first)
  }

  /** Whether a commit is the last one, one before that, or the next. */
  private def follows(folder: File, version: Long) = has(folder, version) || has(folder, version - 1)

  /** If a commit is missing, the rest is listed, so that Delta sees it. */
  private def following(folder: File, first: Long): Iterator[String] = Iterator.unfold(first) { version =>
    if (has(folder, version)) Some((Kinds.map(name(version, _)), version + 1))
    else if (has(folder, version + 1)) Some((listed(folder, name(version, "")).toSeq, Long.MaxValue))
    else None
  }.flatten

  private def listed(folder: File, first: String): Iterator[String] = {
    val names = folder.list()
    if (names == null) throw new FileNotFoundException(s"No such file or directory: $folder")
    val found = names.collect { case Version(number, kind) => (number.toLong, kind) }
    val commits = found.collect { case (version, "json") => version }
    val isWhole = commits.nonEmpty && commits.max - commits.min + 1 == commits.length
    if (isWhole && found.forall { case (_, kind) => Kinds.contains(kind) }) known.add(folder) else known.remove(folder)
    names.filter(_ >= first).sorted.iterator
  }

  private def has(folder: File, version: Long) = new File(folder, name(version, "json")).exists()
  private def name(version: Long, kind: String) = f"$version%020d.$kind"
}

}
