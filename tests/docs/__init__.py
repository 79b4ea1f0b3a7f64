"""Tests of the documentation: code blocks run or are valid, links have targets, the site builds."""
