/** Hadoop's files of this machine, without a process for each that is made or renamed.
  *
  * Where Hadoop has no native library it runs `chmod` and `readlink`, several of them for a rename, by which Delta and
  * checkpoints commit. Java can do both.
  */
package lakehouse {

import java.net.URI
import java.nio.file.Files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.LocalConfigKeys
import org.apache.hadoop.fs.permission.FsPermission

/** Without checksums. */
class RawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    val file = pathToFile(path).toPath
    // As `chmod` with a number does, which leaves a folder's bit by which all in it has its group.
    val kept = if (Files.isDirectory(file)) Files.getAttribute(file, "unix:mode").asInstanceOf[Int] & SetGroup else 0
    Files.setAttribute(file, "unix:mode", Int.box(permission.toShort | kept))
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)

  private val SetGroup = 0x400
}

/** For what asks for a `FileSystem`. As with Spark's own, which is Hive's, a rename replaces no file. */
class LocalFiles extends LocalFileSystem(new RawFiles) {
  override def rename(from: Path, to: Path): Boolean = !pathToFile(to).isFile && super.rename(from, to)
}

/** For what asks for a `FileContext`. */
class LocalContext(uri: URI, conf: Configuration) extends ChecksumFs(new RawContext(conf))

class RawContext(conf: Configuration)
    extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new RawFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
  override def getServerDefaults(path: Path): FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def getServerDefaults: FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def isValidName(name: String): Boolean = true
}

}
