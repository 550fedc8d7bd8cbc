/** Hadoop's local file system, without a process for each file that is created or renamed, and Delta's log on it.
  *
  * Without its native library, Hadoop runs `chmod` and `readlink`, several times for each rename. Delta and checkpoints
  * commit by renames. Java can do both itself.
  */
package lakehouse {

import java.io.{File, FileNotFoundException}
import java.net.URI
import java.nio.file.Files
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

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

  private val SetGroup = 0x400
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
  * A table that is written every second has a million files in its log. So a folder is listed once in a process, by
  * which Delta finds out whether a commit is missing. Afterwards, the file of one version after the other is looked for.
  */
class LocalLog(conf: Configuration) extends HDFSLogStore(conf) {
  override def listFrom(path: Path, conf: Configuration): java.util.Iterator[FileStatus] = {
    val folder = new File(path.getParent.toUri.getPath)
    val files = path.getFileSystem(conf)
    val names = LocalLog.following(folder, path.getName).getOrElse(LocalLog.listed(folder, path.getName))
    names.flatMap(name => status(files, new Path(path.getParent, name))).asJava
  }

  /** Nothing if there is no such file, or none any more. */
  private def status(files: FileSystem, path: Path): Option[FileStatus] =
    try Some(files.getFileStatus(path))
    catch { case _: FileNotFoundException => None }
}

object LocalLog {
  /** The logs that were listed, and have no other files than these of each version, in the order of their names. */
  private val known = ConcurrentHashMap.newKeySet[File]
  private val Kinds = Seq("checkpoint.parquet", "crc", "json")
  private val Version = """(\d{20})\.(.*)""".r

  /** The names of all files from this one on. */
  private def listed(folder: File, first: String): Iterator[String] = {
    val names = folder.list()
    if (names == null) throw new FileNotFoundException(s"No such file or directory: $folder")
    val isPlain = names.forall { case Version(_, kind) => Kinds.contains(kind); case _ => true }
    if (isPlain) known.add(folder) else known.remove(folder)
    names.filter(_ >= first).sorted.iterator
  }

  /** The names that files from this version on can have, if its commit is there, and none is missing after the last. */
  private def following(folder: File, first: String): Option[Iterator[String]] = first match {
    case Version(number, _) if known.contains(folder) && exists(folder, number.toLong) =>
      val last = Iterator.from(0).map(number.toLong + _).takeWhile(exists(folder, _)).foldLeft(0L)((_, it) => it)
      if (exists(folder, last + 2)) None
      else Some((number.toLong to last).iterator.flatMap(it => Kinds.map(name(it, _))).filter(_ >= first))
    case _ => None
  }

  private def exists(folder: File, version: Long) = new File(folder, name(version, "json")).exists()
  private def name(version: Long, kind: String) = f"$version%020d.$kind"
}

}
