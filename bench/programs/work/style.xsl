<?xml version="1.0"?>
<!-- Orders become a page: by city, with sums and sorted articles. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
  <xsl:output method="html"/>
  <xsl:key name="city" match="order" use="@city"/>
  <xsl:template match="/orders">
    <html><body>
      <xsl:for-each select="order[generate-id() = generate-id(key('city', @city)[1])]">
        <xsl:sort select="@city"/>
        <h2><xsl:value-of select="@city"/>: <xsl:value-of select="sum(key('city', @city)/item/price)"/></h2>
        <xsl:apply-templates select="key('city', @city)"><xsl:sort select="customer"/></xsl:apply-templates>
      </xsl:for-each>
    </body></html>
  </xsl:template>
  <xsl:template match="order">
    <p class="{@paid}"><b><xsl:value-of select="customer"/></b>
      <i><xsl:value-of select="translate(note, 'abc', 'ABC')"/></i>
      <ul><xsl:apply-templates select="item"><xsl:sort select="price" data-type="number"/></xsl:apply-templates></ul>
    </p>
  </xsl:template>
  <xsl:template match="item">
    <li><xsl:value-of select="concat(@count, ' ', @article, ' ', format-number(price, '0.00'))"/></li>
  </xsl:template>
</xsl:stylesheet>
