/** Hadoop's local file system, without a process for each file that is created or renamed, and Delta's log on it.
  *
  * Without its native library, Hadoop runs `chmod` and `readlink`, several times for each rename. Delta and checkpoints
  * commit by renames. Java can do both itself.
  */
package lakehouse {

import java.io.{File, FileNotFoundException}
import java.net.URI
import java.nio.file.Files

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

/** Delta's log. Its own class asks for the size and time of each file in the folder to list the few last ones. */
class LocalLog(conf: Configuration) extends HDFSLogStore(conf) {
  override def listFrom(path: Path, conf: Configuration): java.util.Iterator[FileStatus] = {
    val files = path.getFileSystem(conf)
    val names = new File(path.getParent.toUri.getPath).list()
    if (names == null) throw new FileNotFoundException(s"No such file or directory: ${path.getParent}")
    names.filter(_ >= path.getName).sorted.iterator.flatMap(name => status(files, new Path(path.getParent, name))).asJava
  }

  /** Nothing if the file was deleted meanwhile. */
  private def status(files: FileSystem, path: Path): Option[FileStatus] =
    try Some(files.getFileStatus(path))
    catch { case _: FileNotFoundException => None }
}

}
