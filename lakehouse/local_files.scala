/** Hadoop's files of this machine, without a process for each that is made or renamed.
  *
  * Where Hadoop has no native library it runs `chmod` and `readlink`, which takes 50 ms for the rename by which Delta
  * and checkpoints commit. Java can do both.
  */
package lakehouse {

import java.net.URI
import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.local.LocalConfigKeys
import org.apache.hadoop.fs.permission.FsPermission

/** Without checksums. */
class RawFiles extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit =
    if (permission.getStickyBit) super.setPermission(path, permission)
    else Files.setPosixFilePermissions(pathToFile(path).toPath, PosixFilePermissions.fromString(permission.toString))

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)
}

/** For what asks for a `FileSystem`. */
class LocalFiles extends LocalFileSystem(new RawFiles)

/** For what asks for a `FileContext`. */
class LocalContext(uri: URI, conf: Configuration) extends ChecksumFs(new RawContext(uri, conf))

class RawContext(uri: URI, conf: Configuration) extends DelegateToFileSystem(uri, new RawFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
  override def getServerDefaults(path: Path): FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def getServerDefaults: FsServerDefaults = LocalConfigKeys.getServerDefaults
  override def isValidName(name: String): Boolean = true
}

}
