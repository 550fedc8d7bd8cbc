/** Commits of Delta tables and of checkpoints in an object store.
  *
  * Each is one object, put only if there is none of its name. So of two writers, one gets the version, whatever
  * machines they run on, and no half of a commit can be read.
  */
package lakehouse {

import java.io.{ByteArrayOutputStream, FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays

import scala.jdk.CollectionConverters._

import io.delta.storage.HadoopFileSystemLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs._
import org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE
import org.apache.hadoop.fs.s3a.{Listing, S3AFileSystem, S3AUtils, S3ListRequest}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request

object Put {
  def replacing(files: FileSystem, path: Path, content: Array[Byte]): Unit =
    write(files.create(path, true), content)

  /** Whether the content was put; false if another one is there.
    *
    * An error can come although the content was put, as the answer may be lost. Then it is there.
    */
  def ifAbsent(files: FileSystem, path: Path, content: Array[Byte]): Boolean =
    try {
      write(files.createFile(path).must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true).build(), content)
      true
    } catch {
      case error: IOException =>
        val held = read(files, path).getOrElse(throw error)
        Arrays.equals(held, content)
    }

  private def write(out: FSDataOutputStream, content: Array[Byte]): Unit = {
    try out.write(content)
    catch { case error: IOException => out.abort(); throw error } // to close it would put what was written
    out.close()
  }

  private def read(files: FileSystem, path: Path): Option[Array[Byte]] =
    try {
      val in = files.open(path)
      try Some(in.readAllBytes())
      finally in.close()
    } catch { case _: FileNotFoundException => None }
}

/** Delta's log. Its class for S3 has a lock within one JVM only. */
class StoreLog(conf: Configuration) extends HadoopFileSystemLogStore(conf) {
  override def write(
      path: Path, actions: java.util.Iterator[String], overwrite: java.lang.Boolean, conf: Configuration): Unit = {
    val files = path.getFileSystem(conf)
    val content = actions.asScala.map(_ + "\n").mkString.getBytes(UTF_8)
    if (overwrite) Put.replacing(files, path, content)
    else if (!Put.ifAbsent(files, path, content)) throw new java.nio.file.FileAlreadyExistsException(path.toString)
  }

  /** Asks the store for the files from this one on, instead of all. */
  override def listFrom(path: Path, conf: Configuration): java.util.Iterator[FileStatus] = {
    val (files, folder) = (path.getFileSystem(conf).asInstanceOf[S3AFileSystem], path.getParent)
    val before = files.pathToKey(path).dropRight(1)
    val all = ListObjectsV2Request.builder.bucket(files.getBucket).prefix(files.pathToKey(folder) + "/")
    val request = S3ListRequest.v2(all.startAfter(before).delimiter("/").build)
    val (accepted, span) = (new Listing.AcceptAllButSelfAndS3nDirs(folder), files.getActiveAuditSpan)
    val listing = files.getListing.createFileStatusListingIterator(folder, request, S3AUtils.ACCEPT_ALL, accepted, span)
    val found: Array[FileStatus] = S3AUtils.iteratorToStatuses(listing).toArray
    if (found.isEmpty && !files.exists(folder)) throw new FileNotFoundException(s"No such file or directory: $folder")
    found.filter(_.getPath.getName >= path.getName).sortBy(_.getPath.getName).iterator.asJava
  }

  override def isPartialWriteVisible(path: Path, conf: Configuration): java.lang.Boolean = false
}

/** The checkpoints of streams. Spark's classes rename files, which are copies in an object store. */
class StoreCheckpoints(path: Path, conf: Configuration) extends CheckpointFileManager {
  private val files = path.getFileSystem(conf)

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream =
    new Draft(files, path, overwriteIfPossible, new ByteArrayOutputStream)

  override def open(path: Path): FSDataInputStream = files.open(path)
  override def list(path: Path, filter: PathFilter): Array[FileStatus] = files.listStatus(path, filter)
  override def mkdirs(path: Path): Unit = files.mkdirs(path)
  override def exists(path: Path): Boolean = files.exists(path)
  override def isLocal: Boolean = false

  override def delete(path: Path): Unit = files.delete(path, true)

  override def createCheckpointDirectory(): Path = {
    val qualified = path.makeQualified(files.getUri, files.getWorkingDirectory)
    files.mkdirs(qualified)
    qualified
  }
}

/** A file that is put when it is closed. */
class Draft(files: FileSystem, path: Path, overwrite: Boolean, content: ByteArrayOutputStream)
    extends CancellableFSDataOutputStream(content) {
  private var ended = false

  override def close(): Unit = if (!ended) {
    ended = true
    super.close()
    if (overwrite) Put.replacing(files, path, content.toByteArray)
    else if (!Put.ifAbsent(files, path, content.toByteArray))
      throw new org.apache.hadoop.fs.FileAlreadyExistsException(path.toString)
  }

  override def cancel(): Unit = ended = true
}

}
