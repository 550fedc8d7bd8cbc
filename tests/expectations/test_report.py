from pulsar_lakehouse.expectations.report import ICONS, without_internet

PAGE = """<head><script src="https://cdn.org/npm/vega@5"></script>
<script src="https://code.org/jquery-3.7.1.min.js" integrity="sha" crossorigin="anonymous"></script>
<link rel="stylesheet" href="https://max.org/4.3.1/css/bootstrap.min.css"/>
<style>a { background: url('https://s3.org/logo.png') 0 0 no-repeat; color: red }</style></head>
<a href="../index.html"><img
  class="NO-CACHE" src="https://s3.org/logo.png"/></a>
<footer><a href="https://greatexpectations.io/newsletter">Subscribe</a></footer>"""


def test_what_a_page_loads_lies_beside_it_or_is_left_out() -> None:
    assert without_internet(PAGE, static="../static").replace(ICONS, "") == (
        """<head>
<script src="../static/jquery.min.js"></script>
<link rel="stylesheet" href="../static/bootstrap.min.css">
<style>a {  color: red }</style></head>
<a href="../index.html"></a>
"""
    )
