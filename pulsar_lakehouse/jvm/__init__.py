"""Finds a Java, compiles our Scala code for it, and archives the classes that a JVM has loaded."""
