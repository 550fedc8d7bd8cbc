import subprocess
import sys

DECLARATIONS = ("contracts.topics", "silver.entity", "gold.enrichment.declaration")
ENGINE = ("delta", "deltalake", "pulsar_lakehouse.tables.lake")


def test_declarations_load_no_engine() -> None:
    imports = "; ".join(f"import pulsar_lakehouse.{name}" for name in DECLARATIONS)
    check = f"import sys; {imports}; sys.exit(', '.join(sys.modules.keys() & {{*{ENGINE}}}))"
    process = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert process.stderr.strip() == ""
